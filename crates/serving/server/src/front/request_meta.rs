//! Deadline and priority of a request.
//!
//! The timeout is in the header `x-request-timeout-ms`, in the header `grpc-timeout`, or in the
//! parameter `timeout`, in microseconds. The shortest one applies, and none extends the objective
//! of a model. Values of parameter `priority` are 1 for high, 2 for normal, larger for low. In both
//! parameters 0 means "not set", as in Triton.

use std::fmt::Display;
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::header::{AsHeaderName, HeaderValue};

use super::request_error::{ErrorKind, RequestError};
use super::validate::excerpt;
use albacore_engine::{ModelHandle, Priority, Reply, RequestFailure};

/// Returns the value of a header that must not be repeated.
///
/// # Errors
/// The header is repeated: a proxy and this server could read different values.
pub(super) fn single_header(
    headers: &HeaderMap,
    name: impl AsHeaderName + Display + Copy,
) -> Result<Option<&HeaderValue>, RequestError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(RequestError::invalid(format!(
            "header {name} is sent more than once: send it once"
        ))),
    }
}

/// Timeout in milliseconds, for both protocols.
const TIMEOUT_HEADER: &str = "x-request-timeout-ms";

/// Timeout of a gRPC call.
pub(super) const GRPC_TIMEOUT_HEADER: &str = "grpc-timeout";

/// Maximum number of digits, by the gRPC specification.
const GRPC_TIMEOUT_DIGITS: usize = 8;

pub(super) const TIMEOUT: &str = "timeout";
pub(super) const PRIORITY: &str = "priority";

/// Deadline and priority of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestMeta {
    arrival: Instant,
    /// Arrival of the last byte; that of the first byte until it is known.
    complete_at: Instant,
    /// Measured from `arrival`.
    timeout: Option<Duration>,
    priority: Priority,
}

impl RequestMeta {
    /// For a request with these headers whose first byte arrived at `arrival`.
    pub(super) fn new(arrival: Instant, headers: &HeaderMap) -> Result<Self, RequestError> {
        let mut meta = Self {
            arrival,
            complete_at: arrival,
            timeout: None,
            priority: Priority::default(),
        };
        if let Some(value) = single_header(headers, TIMEOUT_HEADER)? {
            let millis = value.to_str().ok().and_then(whole_number);
            let millis = millis.ok_or_else(|| {
                let text = excerpt(&String::from_utf8_lossy(value.as_bytes()));
                RequestError::invalid(format!(
                    "header {TIMEOUT_HEADER} is {text:?}: send a whole number of milliseconds"
                ))
            })?;
            meta.shorten_timeout(Duration::from_millis(millis));
        }
        if let Some(value) = single_header(headers, GRPC_TIMEOUT_HEADER)? {
            let timeout = value.to_str().ok().and_then(grpc_timeout);
            meta.shorten_timeout(timeout.ok_or_else(|| {
                let text = excerpt(&String::from_utf8_lossy(value.as_bytes()));
                RequestError::invalid(format!(
                    "header {GRPC_TIMEOUT_HEADER} is {text:?}: send up to {GRPC_TIMEOUT_DIGITS} \
                     digits and one of H M S m u n"
                ))
            })?);
        }
        Ok(meta)
    }

    /// Sets the arrival of the last byte.
    pub(super) fn set_complete_at(&mut self, complete_at: Instant) {
        self.complete_at = complete_at;
    }

    fn shorten_timeout(&mut self, timeout: Duration) {
        self.timeout = Some(self.timeout.map_or(timeout, |other| other.min(timeout)));
    }

    /// Applies parameter `timeout`; `None` if its value is not an integer.
    pub(super) fn set_timeout(&mut self, micros: Option<u64>) -> Result<(), RequestError> {
        match micros {
            Some(0) => Ok(()),
            Some(micros) => {
                self.shorten_timeout(Duration::from_micros(micros));
                Ok(())
            }
            None => Err(RequestError::invalid(format!(
                "parameter {TIMEOUT:?} is not a whole number of microseconds: send one, or 0 for \
                 no timeout"
            ))),
        }
    }

    /// Applies parameter `priority`; `None` if its value is not an integer.
    pub(super) fn set_priority(&mut self, priority: Option<u64>) -> Result<(), RequestError> {
        self.priority = match priority {
            Some(1) => Priority::High,
            Some(0 | 2) => Priority::Normal,
            Some(_) => Priority::Low,
            None => {
                return Err(RequestError::invalid(format!(
                    "parameter {PRIORITY:?} is not a whole number: send 1 for high, 2 or 0 for \
                     normal, 3 for low"
                )));
            }
        };
        Ok(())
    }

    /// Applies deadline and priority to the handle for the request.
    pub(super) fn apply_to(&self, model: ModelHandle) -> ModelHandle {
        let model = model
            .with_priority(self.priority)
            .with_arrival_time(self.complete_at);
        match self.timeout {
            None => model,
            Some(timeout) => model.with_time_limit(timeout.saturating_sub(self.arrival.elapsed())),
        }
    }

    /// Awaits `reply` until the timeout of the request expires.
    pub(super) async fn await_reply(
        &self,
        reply: impl Future<Output = Result<Reply, RequestFailure>>,
    ) -> Result<Reply, RequestError> {
        let Some(timeout) = self.timeout else {
            return Ok(reply.await?);
        };
        let left = timeout.saturating_sub(self.arrival.elapsed());
        match tokio::time::timeout(left, reply).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(RequestError::new(
                ErrorKind::Expired,
                format!("the timeout of the request, {timeout:?}, passed before its reply"),
            )),
        }
    }
}

/// Parses a decimal number without a sign; saturates above the range of the type.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Parses the value of `grpc-timeout`.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let digits = text.get(..text.len().checked_sub(1)?)?;
    if digits.len() > GRPC_TIMEOUT_DIGITS {
        return None;
    }
    let number = whole_number(digits)?;
    Some(match text.as_bytes().last()? {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(headers: &[(&'static str, &str)]) -> Result<RequestMeta, RequestError> {
        let named = |&(name, value): &(&'static str, &str)| {
            let name = hyper::header::HeaderName::from_static(name);
            (name, value.parse().unwrap())
        };
        RequestMeta::new(Instant::now(), &headers.iter().map(named).collect())
    }

    #[test]
    fn the_shortest_of_several_timeouts_counts() {
        let ms = Duration::from_millis;
        assert_eq!(meta(&[]).unwrap().timeout, None);
        let mut both = meta(&[("x-request-timeout-ms", "30"), ("grpc-timeout", "20m")]).unwrap();
        assert_eq!(both.timeout, Some(ms(20)));
        both.set_timeout(Some(0)).unwrap();
        both.set_timeout(Some(90_000)).unwrap();
        assert_eq!(both.timeout, Some(ms(20)));
        both.set_timeout(Some(1_000)).unwrap();
        assert_eq!(both.timeout, Some(ms(1)));
    }

    #[test]
    fn units_of_grpc_timeouts_are_parsed() {
        for (text, nanos) in [
            ("1H", 3_600_000_000_000),
            ("2M", 120_000_000_000),
            ("3S", 3_000_000_000),
            ("4m", 4_000_000),
            ("5u", 5_000),
            ("99999999n", 99_999_999),
            ("0n", 0),
        ] {
            assert_eq!(
                grpc_timeout(text),
                Some(Duration::from_nanos(nanos)),
                "{text}"
            );
        }
        for text in [
            "",
            "m",
            "5",
            "5 m",
            "-5m",
            "+5m",
            "5x",
            "123456789n",
            "5é",
            "é",
        ] {
            assert_eq!(grpc_timeout(text), None, "{text}");
        }
    }

    #[test]
    fn malformed_values_are_refused_by_name() {
        for text in ["", "abc", "1.5", "-1", "+1", "1e3", "0x10"] {
            let message = meta(&[("x-request-timeout-ms", text)]).unwrap_err().message;
            assert!(message.contains("x-request-timeout-ms"), "{message}");
        }
        let message = meta(&[("grpc-timeout", "5")]).unwrap_err().message;
        assert!(message.contains("grpc-timeout"), "{message}");
        let mut meta = meta(&[]).unwrap();
        let message = meta.set_timeout(None).unwrap_err().message;
        assert!(message.contains("\"timeout\""), "{message}");
        let message = meta.set_priority(None).unwrap_err().message;
        assert!(message.contains("\"priority\""), "{message}");
    }

    #[test]
    fn priorities_are_those_of_triton() {
        let mut meta = meta(&[]).unwrap();
        for (number, priority) in [
            (0, Priority::Normal),
            (1, Priority::High),
            (2, Priority::Normal),
            (3, Priority::Low),
            (u64::MAX, Priority::Low),
        ] {
            meta.set_priority(Some(number)).unwrap();
            assert_eq!(meta.priority, priority, "{number}");
        }
    }
}
