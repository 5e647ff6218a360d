//! SHA-256 digests of files, as 64 hex digits.

use std::fmt;
use std::str::FromStr;

/// A SHA-256 digest. Displayed in lower case, parsed in either case.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl FromStr for Digest {
    type Err = String;

    /// # Errors
    /// A message that describes the expected format.
    fn from_str(text: &str) -> Result<Self, String> {
        let nibble = |byte: u8| char::from(byte).to_digit(16);
        let mut bytes = [0; 32];
        let mut found = 0;
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let &[high, low] = pair else { break };
            let (Some(high), Some(low)) = (nibble(high), nibble(low)) else {
                break;
            };
            // Two hex digits are at most 255.
            *byte = (high * 16 + low) as u8;
            found += 2;
        }
        if found == 64 && text.len() == 64 {
            return Ok(Self(bytes));
        }
        Err("is not a SHA-256 digest: write its 64 hex digits, as sha256sum prints them".to_owned())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}
