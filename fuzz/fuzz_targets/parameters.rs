//! External batching parameters: a message of the stream, parsed as in the server, and a line of
//! the agent's feed, parsed as in `albacore-params`. A parsed line must survive a round trip
//! through writing and parsing.
#![no_main]

use albacore_settings::agent_stream::NodeSnapshot;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    albacore_server::fuzz_targets::params_message(bytes);
    if let Ok(decoded) = NodeSnapshot::decode(bytes) {
        let line = decoded
            .snapshot
            .encode()
            .expect("what is read can be written");
        let again = NodeSnapshot::decode(line.as_bytes()).expect("what is written can be read");
        assert_eq!(again.snapshot, decoded.snapshot);
    }
});
