//! The array of numbers in the JSON of an infer request, apart from the rest.
//!
//! Nearly all of such a body is one array. Who looks for its end by a JSON parser and then reads
//! its numbers looks at each byte twice; its brackets alone tell the end in a small part of that
//! time.
//!
//! **Approach.** The array behind the first `"data":` is cut out and a zero put in its place. The
//! rest is short and is parsed as JSON. Whether that place really was the tensor's data, and not
//! part of a string or of another object, only that parse knows: [`Apart::stands_for`] compares
//! where the value lies that it found. If it says no, or the rest is no JSON, nothing is known and
//! the whole has to be parsed.
//!
//! **Limits.** The array itself is not looked at but for its brackets: who reads it ([`Reader`])
//! has to refuse all that JSON does ([`is_number`]).

use memchr::{memchr2_iter, memmem};

use crate::decimal::short_f32;

const KEY: &[u8] = b"\"data\"";

/// Bytes that the rest may have, which is copied: names and parameters take a few hundred.
const REST_BYTES_MAX: usize = 16 << 10;

/// A request whose array was cut out.
#[derive(Debug)]
pub struct Apart<'a> {
    /// The array with its brackets.
    pub array: &'a str,
    /// The request with a `0` for it.
    pub rest: Vec<u8>,
    /// Where that is in `rest`.
    at: usize,
}

impl<'a> Apart<'a> {
    /// Cuts the array behind the first `"data":` out of `json`; `None` if there is none that is
    /// text, or much beside it.
    #[must_use]
    pub fn of(json: &'a [u8]) -> Option<Self> {
        let colon = after_space(json, memmem::find(json, KEY)? + KEY.len());
        if json.get(colon) != Some(&b':') {
            return None;
        }
        let at = after_space(json, colon + 1);
        let behind = json.get(at..)?;
        let length = array_length(behind)?;
        if json.len() - length > REST_BYTES_MAX {
            return None;
        }
        let (array, end) = behind.split_at_checked(length)?;
        let rest = [json.get(..at)?, b"0", end].concat();
        let array = std::str::from_utf8(array).ok()?;
        Some(Self { array, rest, at })
    }

    /// Whether `value`, a part of `rest`, is what stands there for the array.
    #[must_use]
    pub fn stands_for(&self, value: &str) -> bool {
        let place = self.rest.get(self.at..).unwrap_or_default();
        value == "0" && std::ptr::eq(place.as_ptr(), value.as_ptr())
    }
}

#[inline]
fn after_space(json: &[u8], from: usize) -> usize {
    let rest = json.get(from..).unwrap_or_default();
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    from + rest.iter().take_while(is_space).count()
}

/// Bytes of the array that `json` begins with, taken that it has no brackets in strings.
fn array_length(json: &[u8]) -> Option<usize> {
    if json.first() != Some(&b'[') {
        return None;
    }
    let mut open = 0_usize;
    for at in memchr2_iter(b'[', b']', json) {
        open = if json[at] == b'[' { open + 1 } else { open - 1 };
        if open == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// A place in the text of an array.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Before the first byte.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte that is not white space.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        self.at = after_space(self.text.as_bytes(), self.at);
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over `byte` if it is next.
    #[inline]
    pub fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Steps over the next value if it is a short number of binary32 ([`short_f32`]).
    pub fn short_f32(&mut self) -> Option<f32> {
        self.peek();
        let (value, length) = short_f32(self.text.as_bytes().get(self.at..)?)?;
        self.at += length;
        Some(value)
    }

    /// Steps over the bytes up to the next separator.
    pub fn token(&mut self) -> &'a str {
        self.peek();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_end = |byte| matches!(byte, b',' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        let length = rest.bytes().position(is_end).unwrap_or(rest.len());
        self.at += length;
        &rest[..length] // the separators are ASCII: a character border
    }
}

/// Whether `text` is a number as JSON spells it (RFC 8259, section 6): no leading zeros, digits on
/// both sides of a point.
#[must_use]
pub fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (decimal, exponent) = match text.split_once(['e', 'E']) {
        Some((decimal, exponent)) => (decimal, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match decimal.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (decimal, None),
    };
    let has_sense = exponent.is_none_or(|it| digits(it.strip_prefix(['+', '-']).unwrap_or(it)));
    has_sense
        && digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_array_is_apart_from_the_rest() {
        let json = br#"{"inputs": [{"data" : [[1, 2], [3]], "name": "x"}], "outputs": []}"#;
        let apart = Apart::of(json).expect("an array");
        assert_eq!(apart.array, "[[1, 2], [3]]");
        let rest = r#"{"inputs": [{"data" : 0, "name": "x"}], "outputs": []}"#;
        assert_eq!(apart.rest, rest.as_bytes());
        let text = std::str::from_utf8(&apart.rest).expect("text");
        let zero = text.find('0').expect("a zero");
        assert!(apart.stands_for(&text[zero..=zero]));
    }

    #[test]
    fn another_zero_does_not_stand_for_it() {
        let json = br#"{"x": 0, "y": "\"data\":[1]", "z": 0}"#;
        assert_eq!(Apart::of(json).map(|apart| apart.array), None);
        let json = br#"{"x": 0, "data": [1], "z": 0}"#;
        let apart = Apart::of(json).expect("an array");
        let text = std::str::from_utf8(&apart.rest).expect("text");
        let zeros: Vec<_> = text.match_indices('0').collect();
        let stands: Vec<_> = zeros
            .iter()
            .map(|(_, zero)| apart.stands_for(zero))
            .collect();
        assert_eq!(stands, [false, true, false]);
        assert!(!apart.stands_for("0"));
    }

    #[test]
    fn what_has_no_array_is_left_whole() {
        for json in [
            "",
            "{}",
            r#"{"data"#,
            r#"{"data":"#,
            r#"{"data": 1}"#,
            r#"{"data": [[1]"#,
            r#""data""#,
        ] {
            assert!(Apart::of(json.as_bytes()).is_none(), "{json}");
        }
        assert!(Apart::of(b"\"data\":[\xff]").is_none());
        let much = [b"\"data\":[1]", &[b' '; REST_BYTES_MAX][..]].concat();
        assert!(Apart::of(&much).is_none());
    }

    #[test]
    fn a_reader_steps_over_values_and_separators() {
        let mut reader = Reader::new(" [1.5 ,null]");
        assert!(reader.take(b'[') && !reader.take(b','));
        assert_eq!(reader.short_f32(), Some(1.5));
        assert!(reader.take(b',') && reader.short_f32().is_none());
        assert_eq!((reader.token(), reader.peek()), ("null", Some(b']')));
        assert!(reader.take(b']') && reader.peek().is_none());
        assert_eq!(reader.token(), "");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), end in "[\\[\\]0-9,\" ]{0,24}") {
            let whole = [&bytes[..], b"\"data\":[", end.as_bytes()].concat();
            if let Some(apart) = Apart::of(&whole) {
                prop_assert_eq!(apart.array.len() + apart.rest.len(), whole.len() + 1);
            }
        }

        #[test]
        fn a_number_is_what_serde_takes_for_one(text in "-?[0-9.eE+-]{0,7}") {
            prop_assert_eq!(is_number(&text), serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{}", text);
        }
    }
}
