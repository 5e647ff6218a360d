//! Encodes infer calls of the Open Inference Protocol v2 over HTTP and gRPC.
//!
//! The gRPC message is encoded by hand: it has only a few fields, so no generated code is needed.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::Request;

/// Encoding of an infer call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireFormat {
    /// HTTP with JSON only.
    Json,
    /// HTTP with rows and results as binary data after the JSON.
    Binary,
    /// gRPC with rows and results as raw bytes.
    Grpc,
}

/// An infer call.
#[derive(Clone, Copy, Debug)]
pub struct InferRequest<'a> {
    pub model: &'a str,
    /// Name of the input tensor.
    pub input: &'a str,
    /// The requested output; `None` for the server's default.
    pub output: Option<&'a str>,
    /// Row-major values.
    pub values: &'a [f32],
    /// Number of values of a row.
    pub features: usize,
}

impl InferRequest<'_> {
    /// Encodes the call as a request to `address`.
    pub fn request(&self, wire: WireFormat, address: SocketAddr) -> Request {
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (path, headers, body) = match wire {
            WireFormat::Json => {
                let values: Vec<String> = self.values.iter().map(f32::to_string).collect();
                let data = format!("\"data\":[{}]", values.join(","));
                let json = self.json(&data, "");
                let headers = vec![own("content-type", "application/json")];
                (self.path(), headers, json.into_bytes())
            }
            WireFormat::Binary => {
                let data = self.bytes();
                let size = format!("\"parameters\":{{\"binary_data_size\":{}}}", data.len());
                let json = self.json(&size, "\"parameters\":{\"binary_data_output\":true},");
                let headers = vec![
                    own("content-type", "application/octet-stream"),
                    own("inference-header-content-length", &json.len().to_string()),
                ];
                (self.path(), headers, [json.into_bytes(), data].concat())
            }
            WireFormat::Grpc => {
                let headers = vec![
                    own("content-type", "application/grpc"),
                    own("te", "trailers"),
                ];
                let path = "/inference.GRPCInferenceService/ModelInfer".to_owned();
                (path, headers, self.frame())
            }
        };
        let body = Bytes::from(body);
        Request {
            address,
            path,
            headers,
            body,
        }
    }

    fn rows(&self) -> usize {
        self.values.len() / self.features.max(1)
    }

    fn path(&self) -> String {
        format!("/v2/models/{}/infer", self.model)
    }

    fn bytes(&self) -> Vec<u8> {
        let bytes = self.values.iter().flat_map(|value| value.to_le_bytes());
        bytes.collect()
    }

    fn json(&self, data: &str, parameters: &str) -> String {
        let (rows, features, input) = (self.rows(), self.features, self.input);
        let outputs = self.output.map_or(String::new(), |output| {
            format!(",\"outputs\":[{{\"name\":\"{output}\"}}]")
        });
        format!(
            "{{{parameters}\"inputs\":[{{\"name\":\"{input}\",\"shape\":[{rows},{features}],\
             \"datatype\":\"FP32\",{data}}}]{outputs}}}"
        )
    }

    /// `ModelInferRequest` in a gRPC frame: not compressed, four bytes of length.
    fn frame(&self) -> Vec<u8> {
        let mut shape = Vec::new();
        varint(&mut shape, self.rows() as u64);
        varint(&mut shape, self.features as u64);
        let mut input = Vec::new();
        field(&mut input, 1, self.input.as_bytes());
        field(&mut input, 2, b"FP32");
        field(&mut input, 3, &shape);
        let mut message = Vec::new();
        field(&mut message, 1, self.model.as_bytes());
        field(&mut message, 5, &input);
        if let Some(name) = self.output {
            let mut output = Vec::new();
            field(&mut output, 1, name.as_bytes());
            field(&mut message, 6, &output);
        }
        field(&mut message, 7, &self.bytes());
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let mut frame = vec![0];
        frame.extend_from_slice(&length.to_be_bytes());
        frame.append(&mut message);
        frame
    }
}

/// A length-delimited field.
fn field(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    // bound: ten passes, seven bits each
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: InferRequest<'_> = InferRequest {
        model: "m",
        input: "x",
        output: Some("y"),
        values: &[1.0, 2.5],
        features: 2,
    };

    fn body(wire: WireFormat) -> Vec<u8> {
        let request = CALL.request(wire, ([127, 0, 0, 1], 1).into());
        request.body.to_vec()
    }

    #[test]
    fn json_has_the_fields_of_the_call() {
        let json = "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\
                    \"data\":[1,2.5]}],\"outputs\":[{\"name\":\"y\"}]}";
        assert_eq!(String::from_utf8(body(WireFormat::Json)).unwrap(), json);
        let binary = body(WireFormat::Binary);
        assert!(binary.ends_with(&[0, 0, 128, 63, 0, 0, 32, 64]));
        let request = CALL.request(WireFormat::Binary, ([127, 0, 0, 1], 1).into());
        let length: usize = request.headers[1].1.parse().unwrap();
        assert_eq!(length + 8, binary.len());
        assert!(!request.is_grpc());
    }

    #[test]
    fn the_message_of_grpc_has_its_fields() {
        let frame = body(WireFormat::Grpc);
        assert_eq!(frame[..5], [0, 0, 0, 0, 33]);
        let head = b"\x0a\x01m\x2a\x0d\x0a\x01x\x12\x04FP32\x1a\x02\x01\x02";
        assert_eq!(frame[5..23], head[..]);
        assert_eq!(frame[23..28], *b"\x32\x03\x0a\x01y");
        assert_eq!(frame[28..30], [0x3a, 8]);
        let mut out = Vec::new();
        varint(&mut out, 300);
        assert_eq!(out, [0xac, 2]);
    }
}
