//! Unary calls on the wire: one message in five bytes of frame each way, a status behind the reply.
//!
//! Not left to tonic's codec, which takes memory for what a frame announces before it is there,
//! keeps messages that arrive slowly outside of any common bound, and copies each twice.

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response};
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use super::super::coding::Coding;
use super::super::outgoing::Outgoing;
use super::super::refused::{Cause, Refused};
use super::super::terms::single;

/// Bytes before a message: whether it is packed, and its length.
const FRAME_BYTES: usize = 5;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The one message in `body`, unpacked.
pub(super) fn message(headers: &HeaderMap, mut body: Bytes) -> Result<Bytes, Refused> {
    let Some((&[packed, ref length @ ..], _)) = body.split_first_chunk::<FRAME_BYTES>() else {
        let bytes = body.len();
        return Err(Refused::invalid(format!(
            "a call has one message with {FRAME_BYTES} bytes before it; this body has {bytes} bytes"
        )));
    };
    let length = u32::from_be_bytes(*length) as usize;
    let message = body.split_off(FRAME_BYTES);
    if message.len() != length {
        let bytes = message.len();
        return Err(Refused::invalid(format!(
            "the message is {length} bytes long by its frame, and {bytes} bytes came: a call has \
             one message"
        )));
    }
    match packed {
        0 => Ok(message),
        1 => coding(headers)?.unpack(&message),
        _ => Err(Refused::invalid(format!(
            "the first byte of a message is 0, or 1 where it is packed; this is {packed}"
        ))),
    }
}

fn coding(headers: &HeaderMap) -> Result<Coding, Refused> {
    let named = single(headers, "grpc-encoding")?;
    let named = named.map(|name| String::from_utf8_lossy(name.as_bytes()));
    let Some(name) = named.filter(|name| name != "identity") else {
        return Err(Refused::invalid(
            "the message is packed, and grpc-encoding does not say how",
        ));
    };
    Coding::named(&name).ok_or_else(|| {
        let name = super::super::ask::brief(&name);
        let message = format!("grpc-encoding {name:?} is not understood; gzip and deflate are");
        Refused::new(Cause::Unimplemented, message)
    })
}

/// The reply with this message.
pub(super) fn reply(message: &impl Message) -> Response<Outgoing> {
    let length = message.encoded_len();
    let Ok(announced) = u32::try_from(length) else {
        return refused(Refused::new(
            Cause::TooLarge,
            format!("the reply has {length} bytes, more than gRPC can send: ask for fewer rows"),
        ));
    };
    let mut framed = BytesMut::with_capacity(FRAME_BYTES + length);
    framed.put_u8(0);
    framed.put_u32(announced);
    // infallible: the buffer has room, and would grow
    let _ = message.encode(&mut framed);
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let mut reply = Response::new(Outgoing::Whole(Some(framed.freeze()), Some(trailers)));
    reply.headers_mut().insert(CONTENT_TYPE, GRPC);
    reply
}

/// The reply for a refused call.
pub(in super::super) fn refused(refused: Refused) -> Response<Outgoing> {
    let retry_after = refused.retry_after;
    let code = refused.cause.code();
    let mut status = Status::new(code, refused.message);
    if let Some(after) = retry_after {
        // The standard name of "try again after this long" in gRPC, milliseconds.
        let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        let millis = MetadataValue::from(millis);
        status
            .metadata_mut()
            .insert("grpc-retry-pushback-ms", millis);
    }
    let mut reply = status.into_http();
    if code == Code::Unimplemented {
        let known = HeaderValue::from_static("identity,gzip,deflate");
        reply.headers_mut().insert("grpc-accept-encoding", known);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(packed: u8, announced: u32, message: &[u8]) -> Bytes {
        let mut body = vec![packed];
        body.extend(announced.to_be_bytes());
        body.extend(message);
        body.into()
    }

    #[test]
    fn one_message_of_the_announced_length_is_taken() {
        let none = HeaderMap::new();
        assert_eq!(&message(&none, framed(0, 3, b"abc")).unwrap()[..], b"abc");
        assert_eq!(&message(&none, framed(0, 0, b"")).unwrap()[..], b"");
        for (body, part) in [
            (Bytes::new(), "0 bytes"),
            (Bytes::from_static(&[0, 0, 0, 0]), "4 bytes"),
            (framed(0, 4, b"abc"), "3 bytes came"),
            (framed(0, 2, b"abc"), "3 bytes came"),
            (framed(0, u32::MAX, b"abc"), "4294967295"),
            (framed(2, 3, b"abc"), "this is 2"),
            (framed(1, 3, b"abc"), "does not say how"),
        ] {
            let said = message(&none, body).unwrap_err().message;
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn packed_messages_are_unpacked_by_the_coding_that_is_named() {
        let text = vec![7_u8; 10_000];
        for coding in [Coding::Gzip, Coding::Deflate] {
            let packed = coding.pack(&text).unwrap();
            let body = framed(1, packed.len() as u32, &packed);
            let mut headers = HeaderMap::new();
            headers.insert("grpc-encoding", HeaderValue::from_static(coding.name()));
            assert_eq!(&message(&headers, body.clone()).unwrap()[..], &text[..]);
            headers.insert("grpc-encoding", HeaderValue::from_static("br"));
            let refused = message(&headers, body).unwrap_err();
            assert_eq!(refused.cause.code(), Code::Unimplemented);
        }
    }
}
