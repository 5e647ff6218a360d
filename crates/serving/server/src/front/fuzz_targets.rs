//! Entry points of the fuzz targets (`fuzz/`): all parsers of client bytes, without an engine.
//! Compiled with `--cfg fuzzing`, and for the test that runs the committed corpora.

use albacore_engine::{ElementType, Kind, ModelInfo};

pub use super::grpc::fuzz_targets::grpc_message;
pub use super::http::fuzz_targets::{http_body, http_connection};
use super::sample_model::sample_model;
pub use crate::params_client::fuzz_target as params_message;

/// Rows of three features, two outputs.
pub(super) fn model() -> ModelInfo {
    sample_model(3, Kind::Leaf)
}

/// Memory for rows as the engine would allocate it; none for sizes that no input of a fuzz target
/// can have.
pub(super) fn memory(rows: usize, element: ElementType) -> Option<Vec<u8>> {
    let bytes = rows.checked_mul(3 * element.bytes())?;
    (bytes <= 1 << 24).then(|| vec![0xa5; bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    type Target = fn(&[u8]);

    #[test]
    fn inputs_of_the_fuzz_corpora_do_not_panic() {
        let targets: [(&str, Target); 5] = [
            ("http", http_connection),
            ("json", |bytes| http_body(bytes, None)),
            ("binary", |bytes| {
                if let Some((length, body)) = bytes.split_first_chunk() {
                    http_body(body, Some(u16::from_le_bytes(*length).into()));
                }
            }),
            ("protobuf", grpc_message),
            ("parameters", params_message),
        ];
        for (name, target) in targets {
            let folder = format!("{}/../../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
            let files = std::fs::read_dir(folder).unwrap();
            let bytes = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
            let count = bytes.map(|bytes| target(&bytes)).count();
            assert!(count >= 10, "{name} has {count} files");
        }
    }
}
