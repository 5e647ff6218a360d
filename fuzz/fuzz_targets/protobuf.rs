//! Infer calls over gRPC: frames, compressed or not, and messages with typed and with raw tensors.
//! The memory of a decoded message is bounded (libFuzzer's `-malloc_limit_mb`).
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| albacore_server::fuzz_targets::grpc_message(bytes));
