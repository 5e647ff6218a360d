//! Infer calls with binary tensors: two bytes say how many bytes of the rest are JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((length, body)) = bytes.split_first_chunk() {
        albacore_server::fuzz_targets::http_body(body, Some(u16::from_le_bytes(*length).into()));
    }
});
