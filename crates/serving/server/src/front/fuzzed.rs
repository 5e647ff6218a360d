//! What fuzz targets (`fuzz/`) call: everything that reads bytes of a client, without an engine.
//! Compiled with `--cfg fuzzing`, and for the test that runs the committed corpora.

use albacore_engine::{ElementType, Kind, ModelInfo};

pub use super::grpc::fuzzed::call;
pub use super::http::fuzzed::{connection, infer};
use super::sample::sample_model;
pub use crate::told::fuzzed as parameters;

/// Rows of three features, two outputs.
pub(super) fn model() -> ModelInfo {
    sample_model(3, Kind::Leaf)
}

/// Memory for rows as the engine would give it; none for more than a client of this size could
/// mean.
pub(super) fn memory(rows: usize, element: ElementType) -> Option<Vec<u8>> {
    let bytes = rows.checked_mul(3 * element.bytes())?;
    (bytes <= 1 << 24).then(|| vec![0xa5; bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    type Target = fn(&[u8]);

    #[test]
    fn what_was_found_by_fuzzing_is_read_or_refused() {
        let targets: [(&str, Target); 5] = [
            ("http", connection),
            ("json", |bytes| infer(bytes, None)),
            ("binary", |bytes| {
                if let Some((length, body)) = bytes.split_first_chunk() {
                    infer(body, Some(u16::from_le_bytes(*length).into()));
                }
            }),
            ("protobuf", call),
            ("parameters", parameters),
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
