//! HTTP replies. Errors are JSON; results are JSON, optionally followed by binary tensors, or CSV.

use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::super::content_coding::ContentCoding;
use super::super::limits::COMPRESSED_REPLY_BYTES_MIN;
use super::super::metrics::InferCall;
use super::super::reply_body::ReplyBody;
use super::super::request_error::{ENVOY_RATE_LIMITED, RequestError};
use super::super::validate::{self, OutputForm, RequestedOutput, VERSION};
use albacore_call_counts::SERVER_TIMING;
use albacore_engine::{ElementType, ModelInfo, OutputInfo, Reply};
use albacore_extensions::Classification;
use albacore_rows::datatype::Datatype;
use albacore_rows::labels::{self, BYTES, LABEL};

pub(super) type HttpReply = Response<ReplyBody>;

/// Length of the JSON in a body; binary tensors follow it.
pub(super) const JSON_LENGTH: HeaderName =
    HeaderName::from_static("inference-header-content-length");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CSV: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Returns a reply with a JSON body.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> HttpReply {
    // infallible: every value passed here is a struct of strings, numbers and lists
    let body = serde_json::to_vec(value).unwrap_or_default();
    with_type(status, JSON, body)
}

/// Returns a reply with a body of this media type.
pub(super) fn with_type(status: StatusCode, media_type: HeaderValue, body: Vec<u8>) -> HttpReply {
    let mut reply = Response::new(ReplyBody::from(body));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    reply
}

/// Returns the reply for an error.
pub(in super::super) fn error(error: &RequestError) -> HttpReply {
    #[derive(Serialize)]
    struct Body<'a> {
        error: &'a str,
    }
    let body = Body {
        error: &error.message,
    };
    error_of(error, &body)
}

/// Returns the reply for an error, with a custom body.
pub(super) fn error_of(error: &RequestError, body: &impl Serialize) -> HttpReply {
    let mut reply = json(error.kind.status(), body);
    if let Some(seconds) = error.retry_after_seconds() {
        reply
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.kind.forbids_retries() {
        let forbids = HeaderValue::from_static("true");
        reply.headers_mut().insert(ENVOY_RATE_LIMITED, forbids);
    }
    reply
}

/// The reply to an infer call.
pub(super) struct InferReply {
    body: Vec<u8>,
    /// Length of the JSON if binary tensors follow it.
    json_bytes: Option<usize>,
    is_csv: bool,
}

impl InferReply {
    /// Formats the requested outputs of `reply`.
    pub(super) fn print(
        model: &ModelInfo,
        id: Option<&str>,
        rows: usize,
        requested: &[RequestedOutput],
        reply: &Reply,
    ) -> Self {
        let tensors = requested.iter().filter_map(|requested| {
            let kind = requested.kind;
            let (output, values) = (model.output(kind)?, reply.output(kind)?);
            Some(Tensor::new(model, requested, output, values))
        });
        let tensors: Vec<_> = tensors.collect();
        let bytes: usize = tensors.iter().map(|tensor| tensor.bytes().len()).sum();
        // Four bytes take up to sixteen characters; unused capacity costs nothing.
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
        for (index, tensor) in tensors.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            tensor.print(&mut body, rows);
        }
        body.extend_from_slice(b"]}");
        let is_binary = tensors.iter().any(|tensor| tensor.binary);
        let json_bytes = is_binary.then_some(body.len());
        for tensor in tensors.iter().filter(|tensor| tensor.binary) {
            body.extend_from_slice(tensor.bytes());
        }
        Self {
            body,
            json_bytes,
            is_csv: false,
        }
    }

    /// A reply with this JSON body.
    pub(super) fn from_json(body: Vec<u8>) -> Self {
        Self {
            body,
            json_bytes: None,
            is_csv: false,
        }
    }

    /// A reply with these lines of CSV as the body.
    pub(super) fn from_csv(body: Vec<u8>) -> Self {
        Self {
            body,
            json_bytes: None,
            is_csv: true,
        }
    }

    /// Converts to an HTTP reply; compresses it with `coding` unless it is short.
    pub(super) fn into_http(self, coding: Option<ContentCoding>, call: &InferCall) -> HttpReply {
        let media_type = match self.json_bytes {
            Some(_) => OCTETS,
            None if self.is_csv => CSV,
            None => JSON,
        };
        let coding = coding.filter(|_| self.body.len() >= COMPRESSED_REPLY_BYTES_MIN);
        let compressed = coding.and_then(|coding| Some((coding, coding.compress(&self.body)?)));
        let (coding, body) = match compressed {
            Some((coding, compressed)) => (Some(coding), compressed),
            None => (None, self.body),
        };
        let mut reply = with_type(StatusCode::OK, media_type, body);
        if let Some(timing) = call.server_timing() {
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

/// An output of a reply.
struct Tensor<'a> {
    output: &'a OutputInfo,
    binary: bool,
    data: TensorData<'a>,
}

enum TensorData<'a> {
    Values(&'a [u8]),
    /// Classes, and their serialized form if they are binary.
    Classes(Classification, Vec<u8>),
    /// Labels as a serialized binary tensor.
    Labels(Vec<u8>),
    /// Written to shared memory.
    Region,
}

impl<'a> Tensor<'a> {
    fn new(
        model: &ModelInfo,
        requested: &'a RequestedOutput,
        output: &'a OutputInfo,
        values: &'a [u8],
    ) -> Self {
        let (data, binary) = match &requested.form {
            OutputForm::Values => (TensorData::Values(values), requested.binary),
            OutputForm::Classes(count) => {
                let classes = Classification::new(model, output, *count, values);
                let packed = requested.binary.then(|| classes.packed());
                let data = TensorData::Classes(classes, packed.unwrap_or_default());
                (data, requested.binary)
            }
            OutputForm::Labels => {
                let classes = model.class_names.as_ref();
                let labels = classes.map(|it| labels::label_bytes(it, output, values));
                (
                    TensorData::Labels(labels.unwrap_or_default()),
                    requested.binary,
                )
            }
            OutputForm::Region(_) => (TensorData::Region, false),
        };
        Self {
            output,
            binary,
            data,
        }
    }

    /// The bytes that follow the JSON if the tensor is binary.
    fn bytes(&self) -> &[u8] {
        match &self.data {
            TensorData::Values(values) => values,
            TensorData::Classes(_, packed) | TensorData::Labels(packed) => packed,
            TensorData::Region => &[],
        }
    }

    fn print(&self, body: &mut Vec<u8>, rows: usize) {
        let output = self.output;
        let name = validate::output_name(output.kind);
        let (name, datatype, row_shape) = match &self.data {
            TensorData::Classes(classes, _) => (name, BYTES, &[classes.row_classes()][..]),
            TensorData::Labels(_) => (LABEL, BYTES, &[][..]),
            TensorData::Values(_) | TensorData::Region => {
                let datatype = Datatype::from_element(output.element);
                (name, datatype.name(), &output.row_shape[..])
            }
        };
        body.extend_from_slice(b"{\"name\":");
        text(body, name);
        body.extend_from_slice(b",\"datatype\":");
        text(body, datatype);
        let shape: Vec<_> = std::iter::once(&rows).chain(row_shape).collect();
        body.extend_from_slice(b",\"shape\":");
        json_value(body, &shape);
        if self.binary {
            body.extend_from_slice(b",\"parameters\":{\"binary_data_size\":");
            json_value(body, &self.bytes().len());
            body.push(b'}');
        } else {
            self.print_data(body);
        }
        body.push(b'}');
    }

    /// Prints the values, unless they are in shared memory.
    fn print_data(&self, body: &mut Vec<u8>) {
        match &self.data {
            // As in Triton: its C++ client interprets any parameters as those of binary data.
            TensorData::Region => {}
            TensorData::Classes(classes, _) => {
                body.extend_from_slice(b",\"data\":");
                json_value(body, &classes.texts());
            }
            TensorData::Labels(packed) => {
                let labels: Vec<&str> = labels::texts(packed).collect();
                body.extend_from_slice(b",\"data\":");
                json_value(body, &labels);
            }
            TensorData::Values(values) => {
                body.extend_from_slice(b",\"data\":[");
                print_values(body, self.output.element, values);
                body.push(b']');
            }
        }
    }
}

/// Prints values separated by commas.
pub(super) fn print_values(body: &mut Vec<u8>, element: ElementType, values: &[u8]) {
    match element {
        ElementType::F32 => each(body, values, |body, value| {
            f32_text(body, f32::from_le_bytes(value))
        }),
        ElementType::F64 => each(body, values, |body, value| {
            json_value(body, &f64::from_le_bytes(value))
        }),
        ElementType::I32 => each(body, values, |body, value| {
            json_value(body, &i32::from_le_bytes(value))
        }),
    }
}

fn each<const N: usize>(
    body: &mut Vec<u8>,
    values: &[u8],
    mut print: impl FnMut(&mut Vec<u8>, [u8; N]),
) {
    for (index, &value) in values.as_chunks::<N>().0.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        print(body, value);
    }
}

/// Prints the shortest text of a binary32, or `null` for a value that is not finite, because JSON
/// cannot represent it.
///
/// A client that first parses to binary64 rounds twice. This changes exactly one finite value (with
/// either sign) to its neighbor, as the test over all values shows; that value is printed as a
/// binary64.
fn f32_text(body: &mut Vec<u8>, value: f32) {
    match value.abs().to_bits() == DOUBLE_ROUNDED_BITS {
        true => json_value(body, &f64::from(value)),
        false => json_value(body, &value),
    }
}

/// Bit pattern of 7.038531e-26.
const DOUBLE_ROUNDED_BITS: u32 = 0x15ae_43fd;

/// Appends a string as JSON.
fn text(body: &mut Vec<u8>, text: &str) {
    json_value(body, &text);
}

/// Appends a value as JSON.
fn json_value(body: &mut Vec<u8>, value: &impl Serialize) {
    // infallible: writing to a vector cannot fail, and no map with non-string keys is printed
    let _ = serde_json::to_writer(body, value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trips(bits: u32, text: &mut Vec<u8>) -> bool {
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
        fn a_printed_f32_round_trips_through_an_f64(bits in any::<u32>()) {
            prop_assert!(round_trips(bits, &mut Vec::new()));
        }
    }

    /// Tests all values with `ALBACORE_SOAK`, otherwise one of 4,099.
    #[test]
    fn every_f32_round_trips_through_an_f64() {
        let is_soak = std::env::var_os("ALBACORE_SOAK").is_some();
        let mut text = Vec::new();
        for bits in (0..=u32::MAX).step_by(if is_soak { 1 } else { 4099 }) {
            assert!(round_trips(bits, &mut text), "{bits:x}");
        }
        for sign in [0, 1 << 31] {
            assert!(round_trips(DOUBLE_ROUNDED_BITS | sign, &mut text));
        }
    }
}
