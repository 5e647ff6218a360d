//! gRPC fuzz target: framing, message and rows of an infer call.

use albacore_extensions::SharedMemoryRegions;
use albacore_proto::inference::ModelInferRequest;
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::HeaderValue;

use super::super::sample_model::{fuzzed_memory, fuzzed_model};
use super::infer::GrpcInferRequest;
use super::size_check::check_decoded_size;
use super::{decode, unary};

/// Parses an infer call; the first byte selects the content coding.
pub fn grpc_message(bytes: &[u8]) {
    let Some((&coding, body)) = bytes.split_first() else {
        return;
    };
    let mut headers = HeaderMap::new();
    let coding = ["identity", "gzip", "deflate", "br"][usize::from(coding % 4)];
    headers.insert("grpc-encoding", HeaderValue::from_static(coding));
    let message = unary::message(&headers, Bytes::copy_from_slice(body));
    // A body without a valid frame is parsed as an unframed message.
    let message = message.unwrap_or_else(|_| Bytes::copy_from_slice(body));
    if check_decoded_size(&message).is_err() {
        return;
    }
    let Ok(request) = decode::<ModelInferRequest>(message) else {
        return;
    };
    let model = fuzzed_model();
    let Ok(input) = GrpcInferRequest::validate(&model, &request, &SharedMemoryRegions::new(0))
    else {
        return;
    };
    if let Some(mut memory) = fuzzed_memory(input.rows, input.datatype.element()) {
        let _ = input.write_rows(&mut memory);
    }
}
