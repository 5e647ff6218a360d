//! Request bodies of both protocols: reads and decompresses them within limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use albacore_connections::{ConnState, Limit};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use hyper::header::CONTENT_ENCODING;

use super::content_coding::ContentCoding;
use super::limits::{
    BODIES_BYTES_MAX, BODY_BYTES_MAX, BODY_PAUSE_MAX, BODY_RATE_MIN, DISCARDED_BYTES_MAX,
    STALL_GRACE, STALL_MIN,
};
use super::request_error::{ErrorKind, RequestError};
use super::request_meta::single_header;

/// Size of incomplete bodies in memory, over all connections.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyBudget(Arc<AtomicUsize>);

/// Size of one body; subtracted from the budget on drop.
pub(super) struct BudgetShare<'a> {
    budget: &'a BodyBudget,
    bytes: usize,
}

impl BodyBudget {
    pub(super) fn share(&self) -> BudgetShare<'_> {
        BudgetShare {
            budget: self,
            bytes: 0,
        }
    }
}

impl BudgetShare<'_> {
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), RequestError> {
        self.bytes += bytes;
        let before = self.budget.0.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes <= BODIES_BYTES_MAX {
            return Ok(());
        }
        Err(RequestError::overloaded(
            "too many large requests are arriving at once: send the request again later",
        ))
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads the whole body. On error, the rest is discarded in the background.
pub(super) async fn read(
    mut body: Incoming,
    budget: &BodyBudget,
    conn: &ConnState,
) -> Result<Bytes, RequestError> {
    conn.set_reading_body(true);
    let result = read_all(&mut body, budget).await;
    conn.set_reading_body(false);
    if let Err(error) = &result {
        count_error(error, conn);
        discard(body);
    }
    result
}

/// Counts the reason why a body could not be read.
pub(super) fn count_error(error: &RequestError, conn: &ConnState) {
    match error.kind {
        ErrorKind::TooLarge => conn.count(Limit::BodyBytes),
        ErrorKind::Slow => conn.count(Limit::BodyTime),
        ErrorKind::Overloaded => conn.count(Limit::BodiesBytes),
        _ => conn.record_abandoned_request(),
    }
}

async fn read_all(body: &mut Incoming, budget: &BodyBudget) -> Result<Bytes, RequestError> {
    let announced = body.size_hint().lower();
    if announced > BODY_BYTES_MAX as u64 {
        return Err(RequestError::body_too_large(announced));
    }
    let mut reader = RateGuard::new();
    let first = reader.next_frame(body).await?.unwrap_or_default();
    if body.is_end_stream() {
        return Ok(first); // most requests: one read, nothing copied
    }
    let mut share = budget.share();
    let mut whole = Vec::new();
    let mut frame = first;
    loop {
        // bound: BODY_BYTES_MAX bytes; `RateGuard` limits the time of each frame
        let length = whole.len() + frame.len();
        if length > BODY_BYTES_MAX {
            return Err(RequestError::body_too_large(length as u64));
        }
        share.grow(frame.len())?;
        whole.extend_from_slice(&frame);
        match reader.next_frame(body).await? {
            Some(next) => frame = next,
            None => return Ok(whole.into()),
        }
    }
}

/// Reads a body with time limits: no pause of [`BODY_PAUSE_MAX`], and after that time an average
/// rate of at least [`BODY_RATE_MIN`].
pub(super) struct RateGuard {
    start: Instant,
    bytes: u64,
}

impl RateGuard {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            bytes: 0,
        }
    }

    /// Reads the next data frame; `None` at the end of the body.
    pub(super) async fn next_frame(
        &mut self,
        body: &mut Incoming,
    ) -> Result<Option<Bytes>, RequestError> {
        // bound: one pass each time that this process was stalled for STALL_MIN, and one more.
        loop {
            let total = BODY_PAUSE_MAX + Duration::from_secs(self.bytes / BODY_RATE_MIN);
            let left = total.saturating_sub(self.start.elapsed());
            let (time, polled_at) = (left.min(BODY_PAUSE_MAX), Instant::now());
            match tokio::time::timeout(time, body.frame()).await {
                Err(_) => {
                    // If the timer is late, the process had no CPU, and received data may be
                    // unread.
                    let late = polled_at.elapsed().saturating_sub(time);
                    if late < STALL_MIN {
                        return Err(self.too_slow());
                    }
                    self.start += late.max(STALL_GRACE);
                }
                Ok(None) => return Ok(None),
                Ok(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.bytes += data.len() as u64;
                    return Ok(Some(data));
                }
                Ok(Some(Err(error))) => {
                    return Err(RequestError::invalid(format!(
                        "the body is incomplete: {error}"
                    )));
                }
            }
        }
    }

    fn too_slow(&self) -> RequestError {
        let (bytes, seconds) = (self.bytes, self.start.elapsed().as_secs());
        RequestError::new(
            ErrorKind::Slow,
            format!("the body arrives too slowly: {bytes} bytes in {seconds} s"),
        )
    }
}

/// Reads and drops the rest of a body in the background, so that the client receives the reply
/// instead of a connection reset.
pub(super) fn discard(mut body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(tokio::time::timeout(BODY_PAUSE_MAX, async move {
        let mut rest = DISCARDED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            // bound: DISCARDED_BYTES_MAX, BODY_PAUSE_MAX
            let bytes = frame.into_data().map_or(0, |data| data.len());
            match rest.checked_sub(bytes) {
                Some(less) => rest = less,
                None => return,
            }
        }
    }));
}

/// Decompresses a body according to its `Content-Encoding`.
pub(super) fn decompress(
    headers: &HeaderMap,
    body: Bytes,
    conn: &ConnState,
) -> Result<Bytes, RequestError> {
    let Some(name) = single_header(headers, &CONTENT_ENCODING)? else {
        return Ok(body);
    };
    let name = name.to_str().unwrap_or("?");
    if name.trim().eq_ignore_ascii_case("identity") {
        return Ok(body);
    }
    let Some(coding) = ContentCoding::from_name(name) else {
        return Err(RequestError::new(
            ErrorKind::MediaType,
            format!("Content-Encoding {name:?} is not supported; send gzip, deflate or identity"),
        ));
    };
    coding.decompress(&body).inspect_err(|error| {
        if error.kind == ErrorKind::TooLarge {
            conn.count(Limit::BodyBytes);
        }
    })
}
