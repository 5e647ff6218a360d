//! Request bodies: read within bounds, unpacked within bounds.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use hyper::header::CONTENT_ENCODING;

use super::super::limits::{
    BODIES_BYTES_MAX, BODY_BYTES_MAX, BODY_SILENCE_MAX, DISCARDED_BYTES_MAX,
};
use super::super::refused::{Cause, Refused};
use super::reply::Coding;

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
        refused.retry_after = Some(std::time::Duration::from_secs(1));
        Err(refused)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.arriving.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads the whole body. After a refusal the rest is thrown away in the background.
pub(super) async fn read(mut body: Incoming, arriving: &Arriving) -> Result<Bytes, Refused> {
    let whole = gather(&mut body, arriving).await;
    if whole.is_err() {
        discard(body);
    }
    whole
}

async fn gather(body: &mut Incoming, arriving: &Arriving) -> Result<Bytes, Refused> {
    let announced = body.size_hint().lower();
    if announced > BODY_BYTES_MAX as u64 {
        return Err(too_large(announced));
    }
    let first = next(body).await?.unwrap_or_default();
    if body.is_end_stream() {
        return Ok(first); // most requests: one read, nothing copied
    }
    let mut share = arriving.share();
    let mut whole = Vec::new();
    let mut piece = first;
    loop {
        // bound: BODY_BYTES_MAX bytes, each piece within BODY_SILENCE_MAX
        let length = whole.len() + piece.len();
        if length > BODY_BYTES_MAX {
            return Err(too_large(length as u64));
        }
        share.grow(piece.len())?;
        whole.extend_from_slice(&piece);
        match next(body).await? {
            Some(next) => piece = next,
            None => return Ok(whole.into()),
        }
    }
}

/// The next piece of data; `None` at the end.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Refused> {
    let piece = tokio::time::timeout(BODY_SILENCE_MAX, body.frame())
        .await
        .map_err(|_| {
            let seconds = BODY_SILENCE_MAX.as_secs();
            Refused::new(
                Cause::Slow,
                format!("nothing of the body arrived for {seconds} s"),
            )
        })?;
    match piece {
        None => Ok(None),
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(error)) => Err(Refused::invalid(format!("the body broke off: {error}"))),
    }
}

fn too_large(bytes: u64) -> Refused {
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
    tokio::spawn(async move {
        let mut rest = DISCARDED_BYTES_MAX;
        while let Ok(Some(piece)) = next(&mut body).await {
            // bound: DISCARDED_BYTES_MAX
            match rest.checked_sub(piece.len()) {
                Some(less) => rest = less,
                None => return,
            }
        }
    });
}

/// Undoes the content coding that the headers name.
pub(super) fn unpack(headers: &HeaderMap, body: Bytes) -> Result<Bytes, Refused> {
    let Some(name) = headers.get(CONTENT_ENCODING) else {
        return Ok(body);
    };
    let name = name.to_str().unwrap_or("?");
    if name.trim().eq_ignore_ascii_case("identity") {
        return Ok(body);
    }
    let mut unpacked = Vec::new();
    let limit = BODY_BYTES_MAX as u64 + 1;
    let read = match Coding::named(name) {
        Some(Coding::Gzip) => GzDecoder::new(&body[..])
            .take(limit)
            .read_to_end(&mut unpacked),
        Some(Coding::Deflate) => ZlibDecoder::new(&body[..])
            .take(limit)
            .read_to_end(&mut unpacked),
        None => {
            return Err(Refused::new(
                Cause::MediaType,
                format!(
                    "Content-Encoding {name:?} is not understood; gzip, deflate and identity are"
                ),
            ));
        }
    };
    match read {
        Ok(bytes) if bytes > BODY_BYTES_MAX => Err(too_large(bytes as u64)),
        Ok(_) => Ok(unpacked.into()),
        Err(error) => Err(Refused::invalid(format!(
            "the body is not valid {name}: {error}"
        ))),
    }
}
