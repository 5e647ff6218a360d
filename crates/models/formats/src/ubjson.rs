//! UBJSON, draft 12: big-endian numbers, each value preceded by a type marker; arrays and objects
//! may declare one type for all elements (`$`) and their count (`#`).
//!
//! Memory reserved for a declared count is limited by the number of remaining bytes.

use crate::error::{ModelError, ModelResult};
use crate::limits::NESTING_MAX;
use crate::value_reader::{ValueReader, check_length};

/// A UBJSON reader.
pub(crate) struct UbjsonReader<'a> {
    bytes: &'a [u8],
    at: usize,
    nesting: usize,
    /// Type marker of the next value if its container declared it.
    announced: Option<u8>,
}

/// Type and count that a container may declare before its elements.
#[derive(Clone, Copy)]
struct ContainerHeader {
    marker: Option<u8>,
    count: Option<usize>,
}

impl<'a> UbjsonReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            nesting: 0,
            announced: None,
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

    fn take(&mut self, count: usize) -> ModelResult<&'a [u8]> {
        match self
            .at
            .checked_add(count)
            .and_then(|end| self.bytes.get(self.at..end))
        {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => self.error(format!("the file ends, but {count} more bytes are needed")),
        }
    }

    fn take_array<const N: usize>(&mut self) -> ModelResult<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn byte(&mut self) -> ModelResult<u8> {
        Ok(self.take_array::<1>()?[0])
    }

    /// Reads the next marker, skipping no-ops.
    fn marker(&mut self) -> ModelResult<u8> {
        if let Some(marker) = self.announced.take() {
            return Ok(marker);
        }
        // bound: each iteration consumes a byte.
        loop {
            match self.byte()? {
                b'N' => {}
                marker => return Ok(marker),
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn integer(&mut self, marker: u8) -> ModelResult<i64> {
        Ok(match marker {
            b'i' => i64::from(i8::from_be_bytes(self.take_array()?)),
            b'U' => i64::from(self.byte()?),
            b'I' => i64::from(i16::from_be_bytes(self.take_array()?)),
            b'l' => i64::from(i32::from_be_bytes(self.take_array()?)),
            b'L' => i64::from_be_bytes(self.take_array()?),
            b'T' => 1,
            b'F' => 0,
            other => return self.unexpected(other, "an integer"),
        })
    }

    fn float(&mut self, marker: u8) -> ModelResult<f32> {
        Ok(match marker {
            b'd' => f32::from_be_bytes(self.take_array()?),
            b'D' => f64::from_be_bytes(self.take_array()?) as f32,
            // XGBoost writes whole numbers as integers; they are rounded to f32 if they are not
            // exact.
            other => self.integer(other)? as f32,
        })
    }

    fn unexpected<T>(&self, marker: u8, expected: &str) -> ModelResult<T> {
        let marker = char::from(marker).escape_default().to_string();
        self.error(format!("marker '{marker}' instead of {expected}"))
    }

    fn length(&mut self) -> ModelResult<usize> {
        let marker = self.marker()?;
        let length = self.integer(marker)?;
        usize::try_from(length).or_else(|_| self.error(format!("negative length {length}")))
    }

    fn text(&mut self) -> ModelResult<String> {
        let length = self.length()?;
        let bytes = self.take(length)?;
        // 3.2.0 corrupts category names outside of ASCII; lossy conversion is harmless here.
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    fn header(&mut self) -> ModelResult<ContainerHeader> {
        let mut header = ContainerHeader {
            marker: None,
            count: None,
        };
        if self.peek() == Some(b'$') {
            self.at += 1;
            header.marker = Some(self.byte()?);
            if self.peek() != Some(b'#') {
                return self.error("a container with a type but without a count");
            }
        }
        if self.peek() == Some(b'#') {
            self.at += 1;
            let count = self.length()?;
            // Elements of a type without payload use no bytes, so that a count alone would cost
            // time.
            let is_empty_type = matches!(header.marker, Some(b'Z' | b'N' | b'T' | b'F'));
            if is_empty_type || count > self.bytes.len() - self.at {
                return self.error(format!("{count} elements announced in fewer bytes"));
            }
            header.count = Some(count);
        }
        Ok(header)
    }

    fn enter(&mut self) -> ModelResult<()> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(ModelError::too_large(format!(
                "nesting of {}",
                self.nesting
            )));
        }
        Ok(())
    }

    /// Returns whether the container with this header has an element at `index`; consumes the end
    /// marker.
    fn has_element(&mut self, header: ContainerHeader, index: usize, end: u8) -> ModelResult<bool> {
        if let Some(count) = header.count {
            return Ok(index < count);
        }
        // bound: each iteration consumes a byte.
        while self.peek() == Some(b'N') {
            self.at += 1;
        }
        let is_end = self.peek() == Some(end);
        if is_end {
            self.at += 1;
        }
        Ok(!is_end)
    }

    /// Reads an array of numbers with `read`, which reads one element.
    fn numbers<T>(
        &mut self,
        most: usize,
        read: fn(&mut Self, u8) -> ModelResult<T>,
    ) -> ModelResult<Vec<T>> {
        let marker = self.marker()?;
        if marker != b'[' {
            return self.unexpected(marker, "an array of numbers");
        }
        let header = self.header()?;
        check_length(header.count.unwrap_or(0), most)?;
        // Each element takes at least one byte, and `header` has checked that the bytes are
        // available.
        let mut numbers = Vec::with_capacity(header.count.unwrap_or(0));
        // bound: each iteration consumes at least a byte.
        while self.has_element(header, numbers.len(), b']')? {
            check_length(numbers.len() + 1, most)?;
            let marker = match header.marker {
                Some(marker) => marker,
                None => self.marker()?,
            };
            numbers.push(read(self, marker)?);
        }
        Ok(numbers)
    }

    fn skip_value(&mut self, marker: u8) -> ModelResult<()> {
        match marker {
            b'Z' | b'T' | b'F' => {}
            b'i' | b'U' | b'C' => drop(self.take(1)?),
            b'I' => drop(self.take(2)?),
            b'l' | b'd' => drop(self.take(4)?),
            b'L' | b'D' => drop(self.take(8)?),
            b'S' | b'H' => {
                let length = self.length()?;
                self.take(length)?;
            }
            b'[' => {
                self.announced = Some(marker);
                self.array(&mut |source, _| source.skip())?;
            }
            b'{' => {
                self.announced = Some(marker);
                self.object(&mut |source, _| source.skip())?;
            }
            other => return self.unexpected(other, "a value"),
        }
        Ok(())
    }
}

impl ValueReader for UbjsonReader<'_> {
    fn object(
        &mut self,
        field: &mut dyn FnMut(&mut Self, &str) -> ModelResult<()>,
    ) -> ModelResult<()> {
        let marker = self.marker()?;
        if marker != b'{' {
            return self.unexpected(marker, "an object");
        }
        self.enter()?;
        let header = self.header()?;
        let mut index = 0;
        // bound: each iteration consumes a key.
        while self.has_element(header, index, b'}')? {
            let key = self.text()?;
            self.announced = header.marker;
            field(self, &key).map_err(|error| error.inside(&key))?;
            index += 1;
        }
        self.nesting -= 1;
        Ok(())
    }

    fn array(
        &mut self,
        element: &mut dyn FnMut(&mut Self, usize) -> ModelResult<()>,
    ) -> ModelResult<()> {
        let marker = self.marker()?;
        if marker != b'[' {
            return self.unexpected(marker, "an array");
        }
        self.enter()?;
        let header = self.header()?;
        let mut index = 0;
        // bound: each iteration consumes at least a byte.
        while self.has_element(header, index, b']')? {
            self.announced = header.marker;
            element(self, index).map_err(|error| error.inside(&format!("[{index}]")))?;
            index += 1;
        }
        self.nesting -= 1;
        Ok(())
    }

    fn string(&mut self) -> ModelResult<String> {
        match self.marker()? {
            b'S' | b'H' => self.text(),
            b'C' => Ok(char::from(self.byte()?).to_string()),
            other => self.unexpected(other, "a string"),
        }
    }

    fn floats(&mut self, most: usize) -> ModelResult<Vec<f32>> {
        self.numbers(most, Self::float)
    }

    fn integers(&mut self, most: usize) -> ModelResult<Vec<i32>> {
        self.numbers(most, |reader, marker| {
            let wide = reader.integer(marker)?;
            i32::try_from(wide).or_else(|_| reader.error(format!("{wide} exceeds 32 bits")))
        })
    }

    fn wide_integers(&mut self, most: usize) -> ModelResult<Vec<i64>> {
        self.numbers(most, Self::integer)
    }

    fn skip(&mut self) -> ModelResult<()> {
        let marker = self.marker()?;
        self.skip_value(marker)
    }

    fn finish(&mut self) -> ModelResult<()> {
        match self.bytes[self.at..].trim_ascii().is_empty() {
            true => Ok(()),
            false => self.error("bytes after the end of the model"),
        }
    }
}
