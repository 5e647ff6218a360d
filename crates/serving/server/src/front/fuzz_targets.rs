//! Entry points of the fuzz targets (`fuzz/`): all parsers of client input, without an engine.
//! Compiled with `--cfg fuzzing`, and for the test that replays the committed corpora.

pub use super::grpc::fuzz_targets::grpc_message;
pub use super::http::fuzz_targets::{http_body, http_connection};

/// Decodes and validates a message of the params stream.
pub fn params_message(bytes: &[u8]) {
    if bytes.len() <= albacore_params_client::limits::PARAMS_BYTES_MAX {
        let _ = albacore_params_client::decode_parameters(bytes, usize::MAX);
    }
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
