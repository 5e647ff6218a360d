//! Replies over HTTP: JSON always, also for errors; results as text, as bytes behind the JSON, or
//! both.

use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::super::ask::{self, VERSION, Wanted};
use super::super::coding::Coding;
use super::super::datatype::Datatype;
use super::super::limits::COMPRESSED_REPLY_BYTES_MIN;
use super::super::outgoing::Outgoing;
use super::super::refused::Refused;
use super::super::{SERVER_TIMING, server_timing};
use albacore_engine::{ElementType, ModelInfo, OutputInfo, Reply, Timing};

/// What this server sends.
pub(super) type HttpReply = Response<Outgoing>;

/// How many bytes of a body are JSON; the rest is binary tensors.
pub(super) const JSON_LENGTH: HeaderName =
    HeaderName::from_static("inference-header-content-length");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// A reply with a JSON body.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> HttpReply {
    // infallible: every value passed here is a struct of strings, numbers and lists
    let body = serde_json::to_vec(value).unwrap_or_default();
    with_type(status, JSON, body)
}

/// A reply with a body of this type.
pub(super) fn with_type(status: StatusCode, kind: HeaderValue, body: Vec<u8>) -> HttpReply {
    let mut reply = Response::new(Outgoing::from(body));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

/// The reply for a refused request.
pub(in super::super) fn refused(refused: &Refused) -> HttpReply {
    #[derive(Serialize)]
    struct Body<'a> {
        error: &'a str,
    }
    let mut reply = json(
        refused.cause.status(),
        &Body {
            error: &refused.message,
        },
    );
    if let Some(seconds) = refused.retry_after_seconds() {
        reply
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    reply
}

/// The body of an infer reply.
pub(super) struct Results {
    body: Vec<u8>,
    /// Set when binary tensors follow the JSON.
    json_bytes: Option<usize>,
    timing: Timing,
}

impl Results {
    /// Prints the wanted outputs of `reply`.
    pub(super) fn print(
        model: &ModelInfo,
        id: Option<&str>,
        rows: usize,
        wanted: &[Wanted],
        reply: &Reply,
    ) -> Self {
        let outputs: Vec<_> = wanted
            .iter()
            .filter_map(|wanted| {
                Some((
                    wanted.binary,
                    model.output(wanted.kind)?,
                    reply.output(wanted.kind)?,
                ))
            })
            .collect();
        let bytes: usize = outputs.iter().map(|(_, _, values)| values.len()).sum();
        // Four bytes become up to sixteen characters; memory that is not written to costs nothing.
        let mut body = Vec::with_capacity(256 + 4 * bytes);
        body.extend_from_slice(b"{\"model_name\":");
        text(&mut body, &model.name);
        body.extend_from_slice(b",\"model_version\":");
        text(&mut body, VERSION);
        if let Some(id) = id {
            body.extend_from_slice(b",\"id\":");
            text(&mut body, id);
        }
        body.extend_from_slice(b",\"outputs\":[");
        for (place, &(binary, output, values)) in outputs.iter().enumerate() {
            if place > 0 {
                body.push(b',');
            }
            print_output(&mut body, rows, output, binary, values);
        }
        body.extend_from_slice(b"]}");
        let json_bytes = outputs
            .iter()
            .any(|&(binary, ..)| binary)
            .then_some(body.len());
        for (_, _, values) in outputs.iter().filter(|&&(binary, ..)| binary) {
            body.extend_from_slice(values);
        }
        Self {
            body,
            json_bytes,
            timing: reply.timing(),
        }
    }

    /// The reply, compressed if `coding` says so and it is worth it.
    pub(super) fn into_reply(self, coding: Option<Coding>) -> HttpReply {
        let kind = if self.json_bytes.is_some() {
            OCTETS
        } else {
            JSON
        };
        let coding = coding.filter(|_| self.body.len() >= COMPRESSED_REPLY_BYTES_MIN);
        let packed = coding.and_then(|coding| Some((coding, coding.pack(&self.body)?)));
        let (coding, body) = match packed {
            Some((coding, packed)) => (Some(coding), packed),
            None => (None, self.body),
        };
        let mut reply = with_type(StatusCode::OK, kind, body);
        // infallible: digits, letters and punctuation
        if let Ok(timing) = HeaderValue::try_from(server_timing(self.timing)) {
            let name = HeaderName::from_static(SERVER_TIMING);
            reply.headers_mut().insert(name, timing);
        }
        if let Some(coding) = coding {
            reply
                .headers_mut()
                .insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
        if let Some(json_bytes) = self.json_bytes {
            reply
                .headers_mut()
                .insert(JSON_LENGTH, HeaderValue::from(json_bytes));
        }
        reply
    }
}

fn print_output(body: &mut Vec<u8>, rows: usize, output: &OutputInfo, binary: bool, values: &[u8]) {
    body.extend_from_slice(b"{\"name\":");
    text(body, ask::output_name(output.kind));
    body.extend_from_slice(b",\"datatype\":");
    text(body, Datatype::of(output.element).name());
    let shape: Vec<_> = std::iter::once(rows)
        .chain(output.row_shape.iter().copied())
        .collect();
    body.extend_from_slice(b",\"shape\":");
    number(body, &shape);
    if binary {
        body.extend_from_slice(b",\"parameters\":{\"binary_data_size\":");
        number(body, &values.len());
        body.push(b'}');
    } else {
        body.extend_from_slice(b",\"data\":[");
        match output.element {
            ElementType::F32 => each(body, values, |body, value| {
                f32_text(body, f32::from_le_bytes(value))
            }),
            ElementType::F64 => each(body, values, |body, value| {
                number(body, &f64::from_le_bytes(value))
            }),
            ElementType::I32 => each(body, values, |body, value| {
                number(body, &i32::from_le_bytes(value))
            }),
        }
        body.push(b']');
    }
    body.push(b'}');
}

fn each<const N: usize>(
    body: &mut Vec<u8>,
    values: &[u8],
    mut print: impl FnMut(&mut Vec<u8>, [u8; N]),
) {
    for (place, &value) in values.as_chunks::<N>().0.iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        print(body, value);
    }
}

/// The shortest text of a binary32, or `null` for a value that is not finite, which has no JSON
/// form.
///
/// A reader that goes through a binary64 rounds twice. Of all finite values just one, with either
/// sign, comes back as its neighbor then (the test looks at all of them); that one is printed as a
/// binary64.
fn f32_text(body: &mut Vec<u8>, value: f32) {
    match value.abs().to_bits() == ROUNDED_TWICE {
        true => number(body, &f64::from(value)),
        false => number(body, &value),
    }
}

/// The bits of 7.038531e-26.
const ROUNDED_TWICE: u32 = 0x15ae_43fd;

/// A text as JSON.
fn text(body: &mut Vec<u8>, text: &str) {
    number(body, &text);
}

/// Anything that JSON can spell, appended.
fn number(body: &mut Vec<u8>, value: &impl Serialize) {
    // infallible: writing to a vector does not fail, and no map with odd keys is printed
    let _ = serde_json::to_writer(body, value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn comes_back(bits: u32, text: &mut Vec<u8>) -> bool {
        let value = f32::from_bits(bits);
        text.clear();
        f32_text(text, value);
        if !value.is_finite() {
            return text == b"null";
        }
        let wide: f64 = std::str::from_utf8(text).unwrap().parse().unwrap();
        (wide as f32).to_bits() == bits
    }

    proptest! {
        #[test]
        fn a_printed_f32_comes_back_through_an_f64(bits in any::<u32>()) {
            prop_assert!(comes_back(bits, &mut Vec::new()));
        }
    }

    /// Every one of them with `ALBACORE_SOAK`, else one of 4,099.
    #[test]
    fn every_f32_comes_back_through_an_f64() {
        let is_soak = std::env::var_os("ALBACORE_SOAK").is_some();
        let mut text = Vec::new();
        for bits in (0..=u32::MAX).step_by(if is_soak { 1 } else { 4099 }) {
            assert!(comes_back(bits, &mut text), "{bits:x}");
        }
        for sign in [0, 1 << 31] {
            assert!(comes_back(ROUNDED_TWICE | sign, &mut text));
        }
    }
}
