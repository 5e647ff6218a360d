//! Separates the array of numbers in the JSON of an infer request from the rest.
//!
//! Nearly all of such a body is one array. A JSON parser that finds its end, followed by a parser
//! of its numbers, reads each byte twice; matching brackets finds the end in a fraction of that
//! time.
//!
//! **Approach.** The array after the first `"data":` is cut out and replaced by a zero, the
//! placeholder. The rest is short and is parsed as JSON. Only that parser knows whether the
//! placeholder is the tensor's data, and not part of a string or of another object:
//! [`SplitBody::is_placeholder`] compares the address of the value that the parser found. If it is
//! another value, or if the rest is invalid JSON, the caller has to parse the whole body.
//!
//! **Limits.** Only the brackets of the array are examined: whoever parses it ([`Reader`]) has to
//! refuse everything that JSON does not allow ([`is_number`]).

use memchr::{memchr2, memchr2_iter, memmem};

use crate::decimal::short_f32;

const KEY: &[u8] = b"\"data\"";

/// Most bytes of the rest, which is copied: names and parameters take a few hundred.
const REST_BYTES_MAX: usize = 16 << 10;

/// A JSON body whose array was cut out.
#[derive(Debug)]
pub struct SplitBody<'a> {
    /// The array with its brackets.
    pub array: &'a str,
    /// The body with the placeholder `0` in place of the array.
    pub rest: Vec<u8>,
    /// Offset of the placeholder in `rest`.
    placeholder: usize,
}

impl<'a> SplitBody<'a> {
    /// Cuts the array after the first `"data":` out of `json`; `None` if there is none, if it is
    /// not UTF-8, or if the rest is long.
    #[must_use]
    pub fn new(json: &'a [u8]) -> Option<Self> {
        Self::of_key(json, KEY)
    }

    /// The same after the first `key`, which has its quotes.
    #[must_use]
    pub fn of_key(json: &'a [u8], key: &[u8]) -> Option<Self> {
        let colon = skip_space(json, memmem::find(json, key)? + key.len());
        if json.get(colon) != Some(&b':') {
            return None;
        }
        let at = skip_space(json, colon + 1);
        let from_array = json.get(at..)?;
        let length = array_length(from_array)?;
        if json.len() - length > REST_BYTES_MAX {
            return None;
        }
        let (array, end) = from_array.split_at_checked(length)?;
        let rest = [json.get(..at)?, b"0", end].concat();
        let array = std::str::from_utf8(array).ok()?;
        Some(Self {
            array,
            rest,
            placeholder: at,
        })
    }

    /// Whether `value`, a part of `rest`, is the placeholder.
    #[must_use]
    pub fn is_placeholder(&self, value: &str) -> bool {
        let placeholder = self.rest.get(self.placeholder..).unwrap_or_default();
        value == "0" && std::ptr::eq(placeholder.as_ptr(), value.as_ptr())
    }
}

#[inline]
fn skip_space(json: &[u8], from: usize) -> usize {
    let rest = json.get(from..).unwrap_or_default();
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    from + rest.iter().take_while(is_space).count()
}

/// Length of the array at the start of `json`, if no string in it has brackets.
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

/// A position in the text of an array.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    /// At the first byte.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte that is not white space.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        self.at = skip_space(self.text.as_bytes(), self.at);
        self.text.as_bytes().get(self.at).copied()
    }

    /// Consumes `byte` if it is next.
    #[inline]
    pub fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Consumes the next value if it is a short binary32 number (`short_f32`).
    pub fn short_f32(&mut self) -> Option<f32> {
        self.peek();
        let (value, length) = short_f32(self.text.as_bytes().get(self.at..)?)?;
        self.at += length;
        Some(value)
    }

    /// Consumes a string with its quotes, or the bytes up to the next separator.
    pub fn string_or_token(&mut self) -> &'a str {
        match self.peek() {
            Some(b'"') => self.string(),
            _ => self.token(),
        }
    }

    /// Consumes the rest of a string, whose beginning is the `token` that was consumed last, and
    /// returns all of it.
    pub fn rest_of_string(&mut self, token: &str) -> &'a str {
        self.at -= token.len();
        self.string()
    }

    /// Consumes a string, which begins here, or all of the text if it has no end.
    fn string(&mut self) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut length = 1;
        // bound: each pass consumes at least one byte
        while let Some(found) = rest.as_bytes().get(length..)
            && let Some(at) = memchr2(b'"', b'\\', found)
        {
            if found[at] == b'"' {
                let (string, _) = rest.split_at(length + at + 1);
                self.at += string.len();
                return string;
            }
            length += at + 2;
        }
        self.at += rest.len();
        rest
    }

    /// Consumes the bytes up to the next separator.
    pub fn token(&mut self) -> &'a str {
        self.peek();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_end = |byte| matches!(byte, b',' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        let length = rest.bytes().position(is_end).unwrap_or(rest.len());
        self.at += length;
        &rest[..length] // the separators are ASCII: a character boundary
    }
}

/// Whether `text` is a JSON number (RFC 8259, section 6): no leading zeros, digits on both sides of
/// a point.
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
    let is_exponent_valid =
        exponent.is_none_or(|it| digits(it.strip_prefix(['+', '-']).unwrap_or(it)));
    is_exponent_valid
        && digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_array_is_cut_out_of_the_rest() {
        let json = br#"{"inputs": [{"data" : [[1, 2], [3]], "name": "x"}], "outputs": []}"#;
        let split = SplitBody::new(json).expect("an array");
        assert_eq!(split.array, "[[1, 2], [3]]");
        let rest = r#"{"inputs": [{"data" : 0, "name": "x"}], "outputs": []}"#;
        assert_eq!(split.rest, rest.as_bytes());
        let text = std::str::from_utf8(&split.rest).expect("text");
        let zero = text.find('0').expect("a zero");
        assert!(split.is_placeholder(&text[zero..=zero]));
    }

    #[test]
    fn another_zero_is_not_the_placeholder() {
        let json = br#"{"x": 0, "y": "\"data\":[1]", "z": 0}"#;
        assert_eq!(SplitBody::new(json).map(|split| split.array), None);
        let json = br#"{"x": 0, "data": [1], "z": 0}"#;
        let split = SplitBody::new(json).expect("an array");
        let text = std::str::from_utf8(&split.rest).expect("text");
        let zeros: Vec<_> = text.match_indices('0').collect();
        let are_placeholders: Vec<_> = zeros
            .iter()
            .map(|(_, zero)| split.is_placeholder(zero))
            .collect();
        assert_eq!(are_placeholders, [false, true, false]);
        assert!(!split.is_placeholder("0"));
    }

    #[test]
    fn bodies_without_an_array_are_not_split() {
        for json in [
            "",
            "{}",
            r#"{"data"#,
            r#"{"data":"#,
            r#"{"data": 1}"#,
            r#"{"data": [[1]"#,
            r#""data""#,
        ] {
            assert!(SplitBody::new(json.as_bytes()).is_none(), "{json}");
        }
        assert!(SplitBody::new(b"\"data\":[\xff]").is_none());
        let much = [b"\"data\":[1]", &[b' '; REST_BYTES_MAX][..]].concat();
        assert!(SplitBody::new(&much).is_none());
    }

    #[test]
    fn a_reader_consumes_values_and_separators() {
        let mut reader = Reader::new(" [1.5 ,null]");
        assert!(reader.take(b'[') && !reader.take(b','));
        assert_eq!(reader.short_f32(), Some(1.5));
        assert!(reader.take(b',') && reader.short_f32().is_none());
        assert_eq!((reader.token(), reader.peek()), ("null", Some(b']')));
        assert!(reader.take(b']') && reader.peek().is_none());
        assert_eq!(reader.token(), "");
    }

    #[test]
    fn a_reader_consumes_strings_with_escapes_and_separators() {
        let mut reader = Reader::new(r#" "a, ]\"\\" ,"é","\é", 1 ,"x"#);
        assert_eq!(reader.string_or_token(), r#""a, ]\"\\""#);
        assert!(reader.take(b','));
        let token = reader.token();
        assert_eq!(reader.rest_of_string(token), r#""é""#);
        assert!(reader.take(b','));
        assert_eq!(reader.string_or_token(), r#""\é""#);
        assert!(reader.take(b','));
        assert_eq!(reader.string_or_token(), "1");
        assert!(reader.take(b','));
        assert_eq!(reader.string_or_token(), r#""x"#);
        assert_eq!(reader.peek(), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), end in "[\\[\\]0-9,\" ]{0,24}") {
            let whole = [&bytes[..], b"\"data\":[", end.as_bytes()].concat();
            if let Some(split) = SplitBody::new(&whole) {
                prop_assert_eq!(split.array.len() + split.rest.len(), whole.len() + 1);
            }
        }

        #[test]
        fn numbers_are_those_that_serde_accepts(text in "-?[0-9.eE+-]{0,7}") {
            prop_assert_eq!(is_number(&text), serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{}", text);
        }
    }
}
