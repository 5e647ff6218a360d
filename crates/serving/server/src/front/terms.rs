//! What a request says about its own time: until when it is to be answered, and whether before
//! others.
//!
//! Its time comes from the header `x-request-timeout-ms`, from gRPC's own deadline, or from the
//! parameter `timeout` in microseconds; of several the shortest counts, and none makes a model's
//! objective longer. The parameter `priority` is 1 for before others, 2 for as usual, more for
//! after others. In both parameters 0 means that nothing was said, as Triton has it.

use std::fmt::Display;
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::header::{AsHeaderName, HeaderValue};

use super::ask::brief;
use super::refused::{Cause, Refused};
use albacore_engine::{ModelHandle, Priority};

/// The value of a header that may be sent once.
///
/// # Errors
/// It was sent more than once: a proxy and this server could read different values.
pub(super) fn single(
    headers: &HeaderMap,
    name: impl AsHeaderName + Display + Copy,
) -> Result<Option<&HeaderValue>, Refused> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(Refused::invalid(format!(
            "header {name} is sent more than once: send it once"
        ))),
    }
}

/// The header of both protocols.
const TIMEOUT_HEADER: &str = "x-request-timeout-ms";

/// The header by which a gRPC client tells its deadline.
const GRPC_TIMEOUT_HEADER: &str = "grpc-timeout";

/// Digits of the number in it, by its specification.
const GRPC_TIMEOUT_DIGITS: usize = 8;

pub(super) const TIMEOUT: &str = "timeout";
pub(super) const PRIORITY: &str = "priority";

/// The terms of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    arrival: Instant,
    /// When all of it was there, as far as is known.
    whole: Instant,
    timeout: Option<Duration>,
    priority: Priority,
}

impl Terms {
    /// Of a request that began to arrive at this time with these headers.
    pub(super) fn of(arrival: Instant, headers: &HeaderMap) -> Result<Self, Refused> {
        let mut terms = Self {
            arrival,
            whole: arrival,
            timeout: None,
            priority: Priority::default(),
        };
        if let Some(value) = single(headers, TIMEOUT_HEADER)? {
            let millis = value.to_str().ok().and_then(whole_number);
            let millis = millis.ok_or_else(|| {
                let said = brief(&String::from_utf8_lossy(value.as_bytes()));
                Refused::invalid(format!(
                    "header {TIMEOUT_HEADER} is {said:?}: send a whole number of milliseconds"
                ))
            })?;
            terms.shorten(Duration::from_millis(millis));
        }
        if let Some(value) = single(headers, GRPC_TIMEOUT_HEADER)? {
            let timeout = value.to_str().ok().and_then(grpc_timeout);
            terms.shorten(timeout.ok_or_else(|| {
                let said = brief(&String::from_utf8_lossy(value.as_bytes()));
                Refused::invalid(format!(
                    "header {GRPC_TIMEOUT_HEADER} is {said:?}: send up to {GRPC_TIMEOUT_DIGITS} \
                     digits and one of H M S m u n"
                ))
            })?);
        }
        Ok(terms)
    }

    /// All of it was there at this time.
    pub(super) fn set_whole(&mut self, whole: Instant) {
        self.whole = whole;
    }

    fn shorten(&mut self, timeout: Duration) {
        self.timeout = Some(self.timeout.map_or(timeout, |known| known.min(timeout)));
    }

    /// Takes in parameter `timeout`; `None` for a value that is no whole number.
    pub(super) fn set_timeout(&mut self, micros: Option<u64>) -> Result<(), Refused> {
        match micros {
            Some(0) => Ok(()),
            Some(micros) => {
                self.shorten(Duration::from_micros(micros));
                Ok(())
            }
            None => Err(Refused::invalid(format!(
                "parameter {TIMEOUT:?} is not a whole number of microseconds: send one, or 0 for \
                 no timeout"
            ))),
        }
    }

    /// Takes in parameter `priority`, likewise.
    pub(super) fn set_priority(&mut self, priority: Option<u64>) -> Result<(), Refused> {
        self.priority = match priority {
            Some(1) => Priority::High,
            Some(0 | 2) => Priority::Normal,
            Some(_) => Priority::Low,
            None => {
                return Err(Refused::invalid(format!(
                    "parameter {PRIORITY:?} is not a whole number: send 1 for before others, 2 or \
                     0 for as usual, 3 for after others"
                )));
            }
        };
        Ok(())
    }

    /// The model with the terms of the request that is made of it.
    pub(super) fn applied_to(&self, model: ModelHandle) -> ModelHandle {
        let model = model.with_priority(self.priority).arrived_at(self.whole);
        match self.timeout {
            None => model,
            Some(timeout) => model.within(timeout.saturating_sub(self.arrival.elapsed())),
        }
    }
}

impl Terms {
    /// Waits for `reply` for as long as the request's own time lasts.
    pub(super) async fn bound<T>(
        &self,
        reply: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        let Some(timeout) = self.timeout else {
            return reply.await;
        };
        let left = timeout.saturating_sub(self.arrival.elapsed());
        match tokio::time::timeout(left, reply).await {
            Ok(answered) => answered,
            Err(_) => Err(Refused::new(
                Cause::Expired,
                format!("the request's own time of {timeout:?} was over before its answer"),
            )),
        }
    }
}

/// Digits, and nothing else; a number beyond the type counts as its end.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// The value of `grpc-timeout`.
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

    fn terms(headers: &[(&'static str, &str)]) -> Result<Terms, Refused> {
        let named = |&(name, value): &(&'static str, &str)| {
            let name = hyper::header::HeaderName::from_static(name);
            (name, value.parse().unwrap())
        };
        Terms::of(Instant::now(), &headers.iter().map(named).collect())
    }

    #[test]
    fn of_several_times_the_shortest_counts() {
        let ms = Duration::from_millis;
        assert_eq!(terms(&[]).unwrap().timeout, None);
        let mut both = terms(&[("x-request-timeout-ms", "30"), ("grpc-timeout", "20m")]).unwrap();
        assert_eq!(both.timeout, Some(ms(20)));
        both.set_timeout(Some(0)).unwrap();
        both.set_timeout(Some(90_000)).unwrap();
        assert_eq!(both.timeout, Some(ms(20)));
        both.set_timeout(Some(1_000)).unwrap();
        assert_eq!(both.timeout, Some(ms(1)));
    }

    #[test]
    fn units_of_grpc_are_told_apart() {
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
    fn what_is_malformed_is_refused_by_name() {
        for text in ["", "abc", "1.5", "-1", "+1", "1e3", "0x10"] {
            let said = terms(&[("x-request-timeout-ms", text)])
                .unwrap_err()
                .message;
            assert!(said.contains("x-request-timeout-ms"), "{said}");
        }
        let said = terms(&[("grpc-timeout", "5")]).unwrap_err().message;
        assert!(said.contains("grpc-timeout"), "{said}");
        let mut terms = terms(&[]).unwrap();
        let said = terms.set_timeout(None).unwrap_err().message;
        assert!(said.contains("\"timeout\""), "{said}");
        let said = terms.set_priority(None).unwrap_err().message;
        assert!(said.contains("\"priority\""), "{said}");
    }

    #[test]
    fn priorities_are_those_that_users_of_triton_know() {
        let mut terms = terms(&[]).unwrap();
        for (number, priority) in [
            (0, Priority::Normal),
            (1, Priority::High),
            (2, Priority::Normal),
            (3, Priority::Low),
            (u64::MAX, Priority::Low),
        ] {
            terms.set_priority(Some(number)).unwrap();
            assert_eq!(terms.priority, priority, "{number}");
        }
    }
}
