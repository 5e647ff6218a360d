//! Infer calls as JSON: a body results in rows of numbers or in a rejection, in time linear in its
//! length.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| albacore_server::fuzz_targets::http_body(bytes, None));
