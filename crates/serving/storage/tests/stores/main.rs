//! Object stores: real servers, which the tests install, and faulty servers.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod cached;
mod faults;
mod google;
mod registry;
mod s3;
mod seaweed;
mod servers;

use std::collections::BTreeSet;

use albacore_settings::Source;
use albacore_storage::{Fetched, Storage, StorageError};

/// Maximum bytes of a file in these tests.
const BYTES_MAX: u64 = 8 << 20;

/// Returns a model file of several chunks, which depends on `seed`.
fn model(seed: u8) -> Vec<u8> {
    let bytes = (0..3_000_000_u32).map(|i| (i % 251) as u8 ^ seed);
    bytes.collect()
}

type Variables = Vec<(String, String)>;

fn variables(all: &[(&str, &str)]) -> Variables {
    let all = all.iter();
    all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn storage(variables: &Variables) -> Storage {
    let storage = Storage::new(BYTES_MAX, None).unwrap();
    storage.with_variables(variables.clone())
}

fn fetch(url: &str, variables: &Variables) -> Result<Fetched, StorageError> {
    storage(variables).fetch(&Source::Url(url.to_owned()), None, &|| true)
}

/// Returns the message of a fetch that must fail; checks that it begins with the URL and contains
/// no secret of `variables`.
fn refusal(url: &str, variables: &Variables) -> String {
    let error = fetch(url, variables).unwrap_err();
    let (text, printed) = (error.to_string(), format!("{error:?}"));
    assert!(text.starts_with(url), "{text}");
    for (name, value) in variables {
        let is_secret = ["SECRET", "KEY", "TOKEN"]
            .iter()
            .any(|word| name.contains(word));
        let is_shown = text.contains(value.as_str()) || printed.contains(value.as_str());
        assert!(!(is_secret && is_shown), "{name} is shown: {printed}");
    }
    text
}

#[test]
fn no_connection_of_another_program_occupies_a_port_of_a_server() {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let first = range.split_whitespace().next().unwrap();
    let ephemeral: u16 = first.parse().unwrap();
    let ports: [u16; 64] = servers::free_ports();
    assert!(ports.iter().all(|&port| port < ephemeral), "{ports:?}");
    let different: BTreeSet<u16> = ports.into();
    assert_eq!(different.len(), ports.len());
}
