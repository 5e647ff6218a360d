//! Connections: whatever a client sends, heads, bodies in pieces or packed, several requests at
//! once, HTTP/2 frames; each request is read to its end or refused, and every reply is HTTP.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| albacore_server::fuzz_targets::http_connection(bytes));
