//! The gRPC wire format: length-prefixed messages with a frame header of five bytes, one in each
//! direction for unary calls, and a status in the trailers.
//!
//! tonic's codec is not used: it allocates the announced size before the bytes arrive, has no
//! shared limit for messages that arrive slowly, and copies each message twice.

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response};
use prost::Message;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::super::content_coding::ContentCoding;
use super::super::limits::BODY_BYTES_MAX;
use super::super::reply_body::ReplyBody;
use super::super::request_error::{ENVOY_RATE_LIMITED, ErrorKind, RequestError};
use super::super::request_meta::single_header;
use super::super::validate::excerpt;

/// Size of the frame header: compressed flag and message length.
const FRAME_BYTES: usize = 5;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Extracts and decompresses the only message in `body`.
pub(super) fn message(headers: &HeaderMap, mut body: Bytes) -> Result<Bytes, RequestError> {
    let Some((&[compressed, ref length @ ..], _)) = body.split_first_chunk::<FRAME_BYTES>() else {
        let bytes = body.len();
        return Err(RequestError::invalid(format!(
            "the body has {bytes} bytes: expected a prefix of {FRAME_BYTES} bytes and one message"
        )));
    };
    let length = u32::from_be_bytes(*length) as usize;
    let message = body.split_off(FRAME_BYTES);
    if message.len() != length {
        let bytes = message.len();
        return Err(RequestError::invalid(format!(
            "the prefix announces {length} bytes, but {bytes} bytes follow: a call has one message"
        )));
    }
    match compressed {
        0 => Ok(message),
        1 => coding(headers)?.decompress(&message),
        _ => Err(RequestError::invalid(format!(
            "the first byte of the message is {compressed}: expected 0, or 1 if it is compressed"
        ))),
    }
}

fn coding(headers: &HeaderMap) -> Result<ContentCoding, RequestError> {
    let named = single_header(headers, "grpc-encoding")?;
    let named = named.map(|name| String::from_utf8_lossy(name.as_bytes()));
    let Some(name) = named.filter(|name| name != "identity") else {
        return Err(RequestError::invalid(
            "the message is compressed, but grpc-encoding is missing",
        ));
    };
    ContentCoding::from_name(&name).ok_or_else(|| {
        let name = excerpt(&name);
        let message = format!("grpc-encoding {name:?} is not supported; send gzip or deflate");
        RequestError::new(ErrorKind::Unimplemented, message)
    })
}

/// Returns the reply with this message.
pub(super) fn reply(message: &impl Message) -> Response<ReplyBody> {
    let framed = match frame(message) {
        Ok(framed) => framed,
        Err(too_large) => return error(too_large),
    };
    let mut reply = Response::new(ReplyBody::Whole(Some(framed), Some(ok_trailers())));
    reply.headers_mut().insert(CONTENT_TYPE, GRPC);
    reply
}

/// Returns the reply with a stream of messages.
pub(super) fn stream(body: ReplyBody) -> Response<ReplyBody> {
    let mut reply = Response::new(body);
    reply.headers_mut().insert(CONTENT_TYPE, GRPC);
    reply
}

/// Trailers of a successful call.
pub(super) fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

/// Encodes a message with its frame header.
pub(super) fn frame(message: &impl Message) -> Result<Bytes, RequestError> {
    let length = message.encoded_len();
    let announced = u32::try_from(length).map_err(|_| {
        RequestError::new(
            ErrorKind::TooLarge,
            format!("the reply has {length} bytes, more than gRPC can send: ask for fewer rows"),
        )
    })?;
    let mut framed = BytesMut::with_capacity(FRAME_BYTES + length);
    framed.put_u8(0);
    framed.put_u32(announced);
    // infallible: the buffer is large enough, and would grow
    let _ = message.encode(&mut framed);
    Ok(framed.freeze())
}

/// Length of the first message in `stream`, including its frame header; `None` if it is incomplete.
pub(super) fn first_message(stream: &[u8]) -> Result<Option<usize>, RequestError> {
    let Some((&[_, ref length @ ..], rest)) = stream.split_first_chunk::<FRAME_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > BODY_BYTES_MAX {
        return Err(RequestError::body_too_large(length as u64));
    }
    Ok((rest.len() >= length).then_some(FRAME_BYTES + length))
}

/// Modifies the trailers of a reply; if it has no message, they are its headers (trailers-only).
pub(super) fn change_trailers(
    reply: &mut Response<ReplyBody>,
    change: impl FnOnce(&mut HeaderMap),
) {
    match reply.body_mut() {
        ReplyBody::Whole(_, Some(trailers)) => change(trailers),
        ReplyBody::Whole(_, None) | ReplyBody::Stream { .. } => change(reply.headers_mut()),
    }
}

/// Trailers of a failed stream.
pub(super) fn error_trailers(failed: RequestError) -> HeaderMap {
    let mut trailers = error(failed).into_parts().0.headers;
    trailers.remove(CONTENT_TYPE);
    trailers
}

/// Returns the reply to a failed call.
pub(in super::super) fn error(error: RequestError) -> Response<ReplyBody> {
    let code = error.kind.code();
    let status = match error.retry_after {
        // For applications only: `grpc-retry-pushback-ms` would also delay the retry of the client
        // library on another server.
        Some(after) => {
            let details = ErrorDetails::with_retry_info(Some(after));
            Status::with_error_details(code, error.message, details)
        }
        None => Status::new(code, error.message),
    };
    let mut reply = status.into_http();
    if error.kind.forbids_retries() {
        let headers = reply.headers_mut();
        headers.insert("grpc-retry-pushback-ms", HeaderValue::from_static("-1"));
        headers.insert(ENVOY_RATE_LIMITED, HeaderValue::from_static("true"));
    }
    if code == Code::Unimplemented {
        let supported = HeaderValue::from_static("identity,gzip,deflate");
        reply
            .headers_mut()
            .insert("grpc-accept-encoding", supported);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(flag: u8, announced: u32, message: &[u8]) -> Bytes {
        let mut body = vec![flag];
        body.extend(announced.to_be_bytes());
        body.extend(message);
        body.into()
    }

    #[test]
    fn one_message_of_the_announced_length_is_accepted() {
        let none = HeaderMap::new();
        assert_eq!(&message(&none, framed(0, 3, b"abc")).unwrap()[..], b"abc");
        assert_eq!(&message(&none, framed(0, 0, b"")).unwrap()[..], b"");
        for (body, part) in [
            (Bytes::new(), "0 bytes"),
            (Bytes::from_static(&[0, 0, 0, 0]), "4 bytes"),
            (framed(0, 4, b"abc"), "but 3 bytes follow"),
            (framed(0, 2, b"abc"), "but 3 bytes follow"),
            (framed(0, u32::MAX, b"abc"), "4294967295"),
            (framed(2, 3, b"abc"), "the first byte of the message is 2"),
            (framed(1, 3, b"abc"), "grpc-encoding is missing"),
        ] {
            let error_message = message(&none, body).unwrap_err().message;
            assert!(error_message.contains(part), "{part}: {error_message}");
        }
    }

    #[test]
    fn the_first_of_several_messages_is_found_once_it_is_complete() {
        let stream = [framed(0, 3, b"abc"), framed(0, 0, b"")].concat();
        for have in 0..8 {
            assert_eq!(first_message(&stream[..have]).unwrap(), None, "{have}");
        }
        assert_eq!(first_message(&stream[..8]).unwrap(), Some(8));
        assert_eq!(first_message(&stream).unwrap(), Some(8));
        assert_eq!(first_message(&stream[8..]).unwrap(), Some(5));
        // Rejected by the announced length, before the bytes arrive.
        let error = first_message(&framed(0, (64 << 20) + 1, b"")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge);
        assert!(first_message(&framed(0, 64 << 20, b"")).unwrap().is_none());
    }

    #[test]
    fn messages_are_decompressed_by_the_named_coding() {
        let text = vec![7_u8; 10_000];
        for coding in [ContentCoding::Gzip, ContentCoding::Deflate] {
            let compressed = coding.compress(&text).unwrap();
            let body = framed(1, compressed.len() as u32, &compressed);
            let mut headers = HeaderMap::new();
            headers.insert("grpc-encoding", HeaderValue::from_static(coding.name()));
            assert_eq!(&message(&headers, body.clone()).unwrap()[..], &text[..]);
            headers.insert("grpc-encoding", HeaderValue::from_static("br"));
            let error = message(&headers, body).unwrap_err();
            assert_eq!(error.kind.code(), Code::Unimplemented);
        }
    }
}
