//! JSON as written by XGBoost: RFC 8259 plus `NaN`, `Infinity` and `-Infinity`.
//!
//! Numbers are parsed directly into their type with one rounding: parsing to `f64` first would
//! round some `f32` thresholds twice.

use std::str::FromStr;

use crate::error::{ModelError, ModelResult, excerpt};
use crate::limits::NESTING_MAX;
use crate::value_reader::{ValueReader, check_length};

/// A JSON reader.
pub(crate) struct JsonReader<'a> {
    bytes: &'a [u8],
    at: usize,
    nesting: usize,
}

impl<'a> JsonReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let at = if bytes.starts_with(b"\xef\xbb\xbf") {
            3
        } else {
            0
        };
        Self {
            bytes,
            at,
            nesting: 0,
        }
    }

    fn error<T>(&self, reason: impl Into<String>) -> ModelResult<T> {
        let reason = reason.into();
        Err(ModelError::Syntax {
            path: String::new(),
            offset: self.at,
            reason,
        })
    }

    /// Returns the next byte that is not white space, without consuming it.
    fn peek(&mut self) -> Option<u8> {
        match self.bytes.get(self.at) {
            Some(byte) if byte.is_ascii_whitespace() => {
                let rest = &self.bytes[self.at..];
                self.at += rest.len() - rest.trim_ascii_start().len();
                self.bytes.get(self.at).copied()
            }
            found => found.copied(),
        }
    }

    fn unexpected<T>(&mut self, expected: &str) -> ModelResult<T> {
        match self.peek() {
            Some(byte) => {
                let found = char::from(byte).escape_default().to_string();
                self.error(format!("'{found}' instead of {expected}"))
            }
            None => self.error(format!("the file ends before {expected}")),
        }
    }

    fn take_byte(&mut self, byte: u8, expected: &str) -> ModelResult<()> {
        if self.peek() != Some(byte) {
            return self.unexpected(expected);
        }
        self.at += 1;
        Ok(())
    }

    fn open(&mut self, byte: u8, expected: &str) -> ModelResult<()> {
        self.take_byte(byte, expected)?;
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(ModelError::too_large(format!(
                "nesting of {}",
                self.nesting
            )));
        }
        Ok(())
    }

    /// Returns whether another element follows; consumes the comma before it or the end of the
    /// container.
    fn has_element(&mut self, index: usize, end: u8) -> ModelResult<bool> {
        match self.peek() {
            Some(byte) if byte == end => {
                self.at += 1;
                self.nesting -= 1;
                Ok(false)
            }
            _ if index == 0 => Ok(true),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            _ => self.unexpected("',' or the end of the list"),
        }
    }

    /// Reads the text of a number or literal.
    fn token(&mut self) -> ModelResult<&'a str> {
        self.peek();
        let rest = &self.bytes[self.at..];
        let is_part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        match std::str::from_utf8(&rest[..length]) {
            Ok(token) if length > 0 => {
                self.at += length;
                Ok(token)
            }
            _ => self.unexpected("a number"),
        }
    }

    /// Fast path for a short integer, the common case; any other text is left to the parser.
    fn short_integer(&mut self) -> Option<i32> {
        let rest = &self.bytes[self.at..];
        let is_negative = rest.first() == Some(&b'-');
        let digits = &rest[usize::from(is_negative)..];
        let (mut value, mut length) = (0_i32, 0);
        // bound: nine digits fit 32 bits.
        while let Some(digit) = digits.get(length).filter(|it| it.is_ascii_digit()) {
            if length == 9 {
                return None;
            }
            value = value * 10 + i32::from(digit - b'0');
            length += 1;
        }
        let is_end = matches!(digits.get(length), Some(b',' | b']' | b' ' | b'\n'));
        if length == 0 || !is_end {
            return None;
        }
        self.at += length + usize::from(is_negative);
        Some(if is_negative { -value } else { value })
    }

    /// Reads an array of numbers with `short` where possible, else with `parse`.
    fn numbers<T>(
        &mut self,
        most: usize,
        short: impl Fn(&mut Self) -> Option<T>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> ModelResult<Vec<T>> {
        let mut numbers = Vec::new();
        self.open(b'[', "an array of numbers")?;
        // bound: each iteration consumes at least a byte.
        while self.has_element(numbers.len(), b']')? {
            check_length(numbers.len() + 1, most)?;
            self.peek();
            if let Some(number) = short(self) {
                numbers.push(number);
                continue;
            }
            let token = self.token()?;
            match parse(token) {
                Some(number) => numbers.push(number),
                None => {
                    let shown = excerpt(token);
                    return self.error(format!("'{shown}' is not a valid number for this field"));
                }
            }
        }
        Ok(numbers)
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> ModelResult<()> {
        let Some(&escape) = self.bytes.get(self.at) else {
            return self.error("the file ends inside a string");
        };
        self.at += 1;
        let byte = match escape {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            b'"' | b'\\' | b'/' => escape,
            b'u' => {
                let code = self.hexadecimal()?;
                let letter = match code {
                    0xd800..0xdc00 => self.low_surrogate(code)?,
                    _ => char::from_u32(code),
                };
                let letter = letter.unwrap_or(char::REPLACEMENT_CHARACTER);
                text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return self.error("an unknown escape in a string"),
        };
        text.push(byte);
        Ok(())
    }

    /// Reads the four digits of an escape.
    fn hexadecimal(&mut self) -> ModelResult<u32> {
        let digits = self.bytes.get(self.at..self.at + 4).unwrap_or_default();
        let code = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| digits.len() == 4)
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(code) = code else {
            return self.error("an escape \\u without four hexadecimal digits");
        };
        self.at += 4;
        Ok(code)
    }

    /// Returns the character of a surrogate pair whose first half is `high`; `None` if the second
    /// half is missing.
    fn low_surrogate(&mut self, high: u32) -> ModelResult<Option<char>> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if !rest.starts_with(b"\\u") {
            return Ok(None);
        }
        self.at += 2;
        let low = self.hexadecimal()?;
        Ok((0xdc00..0xe000)
            .contains(&low)
            .then(|| 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))
            .and_then(char::from_u32))
    }
}

impl JsonReader<'_> {
    /// Reads a string, or the text of a number or literal.
    pub(crate) fn text(&mut self) -> ModelResult<String> {
        match self.peek() {
            Some(b'"') => self.string(),
            _ => self.token().map(str::to_owned),
        }
    }

    /// Reads an array of at most `most` numbers, each rounded to the nearest `f64`.
    pub(crate) fn doubles(&mut self, most: usize) -> ModelResult<Vec<f64>> {
        self.numbers(
            most,
            |_| None,
            |token| match token {
                "true" | "false" => None,
                _ => f64::from_str(token).ok(),
            },
        )
    }
}

/// Parses a float as written by JSON or XGBoost.
fn float(token: &str) -> Option<f32> {
    match token {
        "true" | "false" => None,
        _ => f32::from_str(token).ok(),
    }
}

fn integer(token: &str) -> Option<i32> {
    match token {
        "true" => Some(1),
        "false" => Some(0),
        _ => token.parse().ok(),
    }
}

impl ValueReader for JsonReader<'_> {
    fn object(
        &mut self,
        field: &mut dyn FnMut(&mut Self, &str) -> ModelResult<()>,
    ) -> ModelResult<()> {
        self.open(b'{', "an object")?;
        let mut index = 0;
        // bound: each iteration consumes a key.
        while self.has_element(index, b'}')? {
            let key = self.string()?;
            self.take_byte(b':', "':'")?;
            field(self, &key).map_err(|error| error.inside(&key))?;
            index += 1;
        }
        Ok(())
    }

    fn array(
        &mut self,
        element: &mut dyn FnMut(&mut Self, usize) -> ModelResult<()>,
    ) -> ModelResult<()> {
        self.open(b'[', "an array")?;
        let mut index = 0;
        // bound: each iteration consumes at least a byte.
        while self.has_element(index, b']')? {
            element(self, index).map_err(|error| error.inside(&format!("[{index}]")))?;
            index += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> ModelResult<String> {
        self.take_byte(b'"', "a string")?;
        let mut text = Vec::new();
        // bound: each iteration consumes at least a byte.
        loop {
            let Some(&byte) = self.bytes.get(self.at) else {
                return self.error("the file ends inside a string");
            };
            self.at += 1;
            match byte {
                b'"' => break,
                b'\\' => self.escape(&mut text)?,
                other => text.push(other),
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn floats(&mut self, most: usize) -> ModelResult<Vec<f32>> {
        self.numbers(most, |_| None, float)
    }

    fn integers(&mut self, most: usize) -> ModelResult<Vec<i32>> {
        self.numbers(most, Self::short_integer, integer)
    }

    fn wide_integers(&mut self, most: usize) -> ModelResult<Vec<i64>> {
        let short = |reader: &mut Self| reader.short_integer().map(i64::from);
        self.numbers(most, short, |token| token.parse().ok())
    }

    fn skip(&mut self) -> ModelResult<()> {
        match self.peek() {
            Some(b'{') => self.object(&mut |source, _| source.skip()),
            Some(b'[') => self.array(&mut |source, _| source.skip()),
            Some(b'"') => self.string().map(drop),
            _ => {
                let token = self.token()?;
                match token {
                    "true" | "false" | "null" => Ok(()),
                    _ if f64::from_str(token).is_ok() => Ok(()),
                    _ => self.error(format!("'{}' is not a JSON value", excerpt(token))),
                }
            }
        }
    }

    fn finish(&mut self) -> ModelResult<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.unexpected("the end of the file"),
        }
    }
}
