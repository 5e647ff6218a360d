//! HTTP/2 frames of misbehaving clients, byte by byte.

// Tests and the benchmark use different parts.
#![allow(dead_code)]

/// The connection preface and an empty SETTINGS frame.
pub(crate) fn opening() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(settings(&[]));
    bytes
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `SETTINGS` with these entries.
pub(crate) fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in entries {
        payload.extend(name.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(4, 0, 0, &payload)
}

/// `PING`.
pub(crate) fn ping() -> Vec<u8> {
    frame(6, 0, 0, b"12345678")
}

/// A literal header field without indexing.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        let mut length = text.len();
        if length < 127 {
            field.push(length as u8);
        } else {
            field.push(127);
            length -= 127;
            while length >= 128 {
                field.push((length % 128 + 128) as u8);
                length /= 128;
            }
            field.push(length as u8);
        }
        field.extend(text.as_bytes());
    }
    field
}

/// Header fields of a request for `path`.
pub(crate) fn request(method: &str, path: &str) -> Vec<u8> {
    [
        field(":method", method),
        field(":scheme", "http"),
        field(":path", path),
        field(":authority", "x"),
    ]
    .concat()
}

/// `HEADERS`, optionally with END_HEADERS and END_STREAM.
pub(crate) fn headers(stream: u32, fields: &[u8], (ends, closes): (bool, bool)) -> Vec<u8> {
    let flags = if ends { 4 } else { 0 } | u8::from(closes);
    frame(1, flags, stream, fields)
}

/// `CONTINUATION` without END_HEADERS.
pub(crate) fn continuation(stream: u32, fields: &[u8]) -> Vec<u8> {
    frame(9, 0, stream, fields)
}

/// `RST_STREAM` with code CANCEL.
pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &8_u32.to_be_bytes())
}

/// `DATA`.
pub(crate) fn data(stream: u32, bytes: &[u8], closes: bool) -> Vec<u8> {
    frame(0, u8::from(closes), stream, bytes)
}
