//! Bodies of requests of both protocols: read within bounds, unpacked within bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use albacore_connections::{ConnState, Limit};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use hyper::header::CONTENT_ENCODING;

use super::coding::Coding;
use super::limits::{
    BODIES_BYTES_MAX, BODY_BYTES_MAX, BODY_RATE_MIN, BODY_SILENCE_MAX, DISCARDED_BYTES_MAX,
    STALL_GRACE, STALL_MIN,
};
use super::refused::{Cause, Refused};
use super::terms::single;

/// Bytes of bodies that are arriving, over all connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Arriving(Arc<AtomicUsize>);

/// A share of [`Arriving`], given back on drop.
struct Share<'a> {
    arriving: &'a Arriving,
    bytes: usize,
}

impl Arriving {
    fn share(&self) -> Share<'_> {
        Share {
            arriving: self,
            bytes: 0,
        }
    }
}

impl Share<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), Refused> {
        self.bytes += bytes;
        let before = self.arriving.0.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes <= BODIES_BYTES_MAX {
            return Ok(());
        }
        let mut refused = Refused::new(
            Cause::Overloaded,
            "too many large requests are arriving at once: send the request again later",
        );
        refused.retry_after = Some(Duration::from_secs(1));
        Err(refused)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.arriving.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads the whole body. After a refusal the rest is thrown away in the background.
pub(super) async fn read(
    mut body: Incoming,
    arriving: &Arriving,
    conn: &ConnState,
) -> Result<Bytes, Refused> {
    conn.awaits_body(true);
    let whole = gather(&mut body, arriving).await;
    conn.awaits_body(false);
    if let Err(refused) = &whole {
        match refused.cause {
            Cause::TooLarge => conn.count(Limit::BodyBytes),
            Cause::Slow => conn.count(Limit::BodyTime),
            Cause::Overloaded => conn.count(Limit::BodiesBytes),
            _ => conn.gave_up(),
        }
        discard(body);
    }
    whole
}

async fn gather(body: &mut Incoming, arriving: &Arriving) -> Result<Bytes, Refused> {
    let announced = body.size_hint().lower();
    if announced > BODY_BYTES_MAX as u64 {
        return Err(too_large(announced));
    }
    let mut pace = Pace::new();
    let first = pace.next(body).await?.unwrap_or_default();
    if body.is_end_stream() {
        return Ok(first); // most requests: one read, nothing copied
    }
    let mut share = arriving.share();
    let mut whole = Vec::new();
    let mut piece = first;
    loop {
        // bound: BODY_BYTES_MAX bytes, each piece in time by its pace
        let length = whole.len() + piece.len();
        if length > BODY_BYTES_MAX {
            return Err(too_large(length as u64));
        }
        share.grow(piece.len())?;
        whole.extend_from_slice(&piece);
        match pace.next(body).await? {
            Some(next) => piece = next,
            None => return Ok(whole.into()),
        }
    }
}

/// How fast a body has to come: never silent for [`BODY_SILENCE_MAX`], and after that time at
/// [`BODY_RATE_MIN`] in all.
struct Pace {
    start: Instant,
    bytes: u64,
}

impl Pace {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            bytes: 0,
        }
    }

    /// The next piece of data; `None` at the end.
    async fn next(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, Refused> {
        // bound: one turn each time that this process had no cpu for STALL_MIN, and one more.
        loop {
            let in_all = BODY_SILENCE_MAX + Duration::from_secs(self.bytes / BODY_RATE_MIN);
            let left = in_all.saturating_sub(self.start.elapsed());
            let (time, asked) = (left.min(BODY_SILENCE_MAX), Instant::now());
            match tokio::time::timeout(time, body.frame()).await {
                Err(_) => {
                    // What came while this process had no cpu is not read yet.
                    let late = asked.elapsed().saturating_sub(time);
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
                    return Err(Refused::invalid(format!("the body broke off: {error}")));
                }
            }
        }
    }

    fn too_slow(&self) -> Refused {
        let (bytes, seconds) = (self.bytes, self.start.elapsed().as_secs());
        Refused::new(
            Cause::Slow,
            format!("the body is too slow: {bytes} bytes of it came in {seconds} s"),
        )
    }
}

pub(super) fn too_large(bytes: u64) -> Refused {
    Refused::new(
        Cause::TooLarge,
        format!(
            "a body of {bytes} bytes is more than the {BODY_BYTES_MAX} that are taken: send fewer \
             rows"
        ),
    )
}

/// Reads what a client still sends, without keeping it: it can then read the answer instead of a
/// reset.
pub(super) fn discard(mut body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(tokio::time::timeout(BODY_SILENCE_MAX, async move {
        let mut rest = DISCARDED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            // bound: DISCARDED_BYTES_MAX, BODY_SILENCE_MAX
            let bytes = frame.into_data().map_or(0, |piece| piece.len());
            match rest.checked_sub(bytes) {
                Some(less) => rest = less,
                None => return,
            }
        }
    }));
}

/// Undoes the content coding that the headers name.
pub(super) fn unpack(headers: &HeaderMap, body: Bytes, conn: &ConnState) -> Result<Bytes, Refused> {
    let Some(name) = single(headers, &CONTENT_ENCODING)? else {
        return Ok(body);
    };
    let name = name.to_str().unwrap_or("?");
    if name.trim().eq_ignore_ascii_case("identity") {
        return Ok(body);
    }
    let Some(coding) = Coding::named(name) else {
        return Err(Refused::new(
            Cause::MediaType,
            format!("Content-Encoding {name:?} is not understood; gzip, deflate and identity are"),
        ));
    };
    coding.unpack(&body).inspect_err(|refused| {
        if refused.cause == Cause::TooLarge {
            conn.count(Limit::BodyBytes);
        }
    })
}
