//! Connections with arbitrary input: heads, chunked or compressed bodies, pipelined requests,
//! HTTP/2 frames; each request is read to its end or rejected, and every reply is HTTP.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| albacore_server::fuzz_targets::http_connection(bytes));
