//! Messages and services between processes: the Open Inference Protocol v2 (package `inference`),
//! the parameters of serving pods (package `albacore.params.v1`), and load reports for routers
//! (package `xds.service.orca.v3`).
//!
//! The wire formats only, not their meaning; in the JSON form of the protocol these are an array
//! (`array`) of decimal numbers (`decimal`). The code is written from `proto/*.proto` by `cargo run
//! -p albacore-xtask -- proto` and committed, so that neither a build script nor `protoc` is
//! needed; a test in `xtask` compares.
#![forbid(unsafe_code)]

pub mod array;
mod decimal;

/// Messages, client and server of the Open Inference Protocol v2.
///
/// Raw tensor bytes are [`prost::bytes::Bytes`]: a request's tensors stay in the buffer that was
/// read.
#[allow(missing_docs, unreachable_pub, rust_2018_idioms, reason = "written by a generator")]
#[allow(clippy::all, clippy::too_many_lines, reason = "written by a generator")]
#[rustfmt::skip]
pub mod inference;

/// Messages, client and server of the parameters that a serving pod receives while it runs.
#[allow(missing_docs, unreachable_pub, rust_2018_idioms, reason = "written by a generator")]
#[allow(clippy::all, clippy::too_many_lines, reason = "written by a generator")]
#[rustfmt::skip]
pub mod params;

/// Load reports (ORCA) and the service that streams them.
#[allow(missing_docs, unreachable_pub, rust_2018_idioms, reason = "written by a generator")]
#[allow(clippy::all, clippy::too_many_lines, reason = "written by a generator")]
#[rustfmt::skip]
pub mod orca;

/// The encoded descriptors of the Open Inference Protocol, for gRPC server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("inference.bin");

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::inference::{ModelInferRequest, model_infer_request::InferInputTensor};

    #[test]
    fn field_numbers_are_those_of_the_protocol() {
        let request = ModelInferRequest {
            model_name: "m".to_owned(),
            id: "7".to_owned(),
            inputs: vec![InferInputTensor {
                name: "i".to_owned(),
                shape: vec![1],
                ..Default::default()
            }],
            raw_input_contents: vec![prost::bytes::Bytes::from_static(&[9])],
            ..Default::default()
        };
        // 1: model_name, 3: id, 5: inputs {1: name, 3: shape, packed}, 7: raw_input_contents.
        let wire = [
            0x0a, 1, b'm', 0x1a, 1, b'7', 0x2a, 6, 0x0a, 1, b'i', 0x1a, 1, 1, 0x3a, 1, 9,
        ];
        assert_eq!(request.encode_to_vec(), wire);
    }

    #[test]
    fn descriptors_name_the_service() {
        let text = String::from_utf8_lossy(super::DESCRIPTORS);
        assert!(text.contains("GRPCInferenceService"));
    }
}
