//! A gRPC infer call for fuzz targets: its frame, its message, its rows.

use albacore_proto::inference::ModelInferRequest;
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::HeaderValue;

use super::super::fuzzed::{memory, model};
use super::infer::Asked;
use super::weigh::weigh;
use super::{decoded, unary};

/// The first byte says how the body is packed.
pub fn call(bytes: &[u8]) {
    let Some((&coding, body)) = bytes.split_first() else {
        return;
    };
    let mut headers = HeaderMap::new();
    let coding = ["identity", "gzip", "deflate", "br"][usize::from(coding % 4)];
    headers.insert("grpc-encoding", HeaderValue::from_static(coding));
    let message = unary::message(&headers, Bytes::copy_from_slice(body));
    // A body that is no frame is looked at as a message all the same.
    let message = message.unwrap_or_else(|_| Bytes::copy_from_slice(body));
    if weigh(&message).is_err() {
        return;
    }
    let Ok(request) = decoded::<ModelInferRequest>(message) else {
        return;
    };
    let model = model();
    let Ok(asked) = Asked::of(&model, &request) else {
        return;
    };
    if let Some(mut memory) = memory(asked.rows, asked.datatype.element()) {
        let _ = asked.fill(&mut memory);
    }
}
