//! A short digest of a JSON value, and the SHA-256 of a text.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of a digest; 64 bits make collisions between versions of one object
/// negligible.
const DIGITS: usize = 16;

/// A digest of `value`; stable across versions of this program.
pub(crate) fn digest_of(value: &Value) -> String {
    let mut digest = sha256_of(value.to_string().as_bytes());
    digest.truncate(DIGITS);
    digest
}

/// The SHA-256 of `bytes` as 64 hexadecimal digits.
pub(crate) fn sha256_of(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
