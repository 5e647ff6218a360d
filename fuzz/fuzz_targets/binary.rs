//! Infer calls with binary tensors: the first two bytes are the length of the JSON in the rest.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((length, body)) = bytes.split_first_chunk() {
        albacore_server::fuzz_targets::http_body(body, Some(u16::from_le_bytes(*length).into()));
    }
});
