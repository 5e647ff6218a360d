//! The header of an `.npy` file: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.

use std::io::{self, Read};

use crate::limits::NPY_HEADER_BYTES_MAX;
use crate::table::NpyError;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// numpy starts the elements at a multiple of this.
const ALIGNMENT: usize = 64;
/// numpy's own bound on the number of axes.
const AXES_MAX: usize = 64;

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// numpy's name of the element type, such as `<f4`.
    pub(crate) descr: String,
    /// Column by column instead of row by row.
    pub(crate) is_fortran: bool,
    /// Length of each axis.
    pub(crate) shape: Vec<usize>,
}

impl Header {
    /// Reads the header; the reader then stands at the first element.
    pub(crate) fn read(reader: &mut impl Read) -> Result<Self, NpyError> {
        let mut start = [0u8; 8];
        read_exact(reader, &mut start)?;
        if !start.starts_with(MAGIC) {
            return Err(NpyError::NotNpy);
        }
        let length = match start[6] {
            1 => {
                let mut length = [0u8; 2];
                read_exact(reader, &mut length)?;
                usize::from(u16::from_le_bytes(length))
            }
            2 | 3 => {
                let mut length = [0u8; 4];
                read_exact(reader, &mut length)?;
                u32::from_le_bytes(length) as usize
            }
            other => return Err(damaged(format!("version {other} is not 1, 2 or 3"))),
        };
        if length > NPY_HEADER_BYTES_MAX {
            return Err(damaged(format!(
                "{length} bytes long, more than {NPY_HEADER_BYTES_MAX}"
            )));
        }
        let mut text = vec![0u8; length];
        read_exact(reader, &mut text)?;
        let text = String::from_utf8(text).map_err(|_| damaged("not text".to_owned()))?;
        Dictionary { rest: &text }.parse()
    }

    /// A header of version 1, for row-major elements.
    pub(crate) fn bytes(descr: &str, shape: &str) -> Vec<u8> {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        let fixed = MAGIC.len() + 2 + 2;
        let total = (fixed + text.len() + 1).next_multiple_of(ALIGNMENT);
        let length = (total - fixed) as u16;
        let mut bytes = Vec::with_capacity(total);
        bytes.extend(MAGIC);
        bytes.extend([1, 0]);
        bytes.extend(length.to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.resize(total - 1, b' ');
        bytes.push(b'\n');
        bytes
    }
}

/// The text that is still to be read.
struct Dictionary<'a> {
    rest: &'a str,
}

impl<'a> Dictionary<'a> {
    fn parse(mut self) -> Result<Header, NpyError> {
        let (mut descr, mut is_fortran, mut shape) = (None, None, None);
        self.expect("{")?;
        // bound: every turn takes a key from the text.
        while !self.take("}") {
            let key = self.quoted()?;
            self.expect(":")?;
            match key {
                "descr" => descr = Some(self.descr()?),
                "fortran_order" => is_fortran = Some(self.boolean()?),
                "shape" => shape = Some(self.shape()?),
                other => return Err(damaged(format!("key {other:?} is not known"))),
            }
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return Err(self.unexpected("the end"));
        }
        let missing = |key: &str| damaged(format!("key {key:?} is missing"));
        Ok(Header {
            descr: descr.ok_or_else(|| missing("descr"))?,
            is_fortran: is_fortran.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    fn descr(&mut self) -> Result<String, NpyError> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('[') {
            return Err(NpyError::NotFloats("structured".to_owned()));
        }
        self.quoted().map(str::to_owned)
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        if self.take("True") {
            return Ok(true);
        }
        self.expect("False").map(|()| false)
    }

    fn shape(&mut self) -> Result<Vec<usize>, NpyError> {
        let mut shape = Vec::new();
        self.expect("(")?;
        // bound: AXES_MAX.
        while !self.take(")") {
            self.rest = self.rest.trim_start();
            let end = self
                .rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(self.rest.len());
            let (digits, rest) = self.rest.split_at(end);
            let axis = digits
                .parse()
                .map_err(|_| self.unexpected("the length of an axis"))?;
            self.rest = rest;
            shape.push(axis);
            if shape.len() > AXES_MAX {
                return Err(damaged(format!("more than {AXES_MAX} axes")));
            }
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(shape)
    }

    /// A string in either kind of quotes, without escapes.
    fn quoted(&mut self) -> Result<&'a str, NpyError> {
        self.rest = self.rest.trim_start();
        for quote in ['\'', '"'] {
            if let Some(inner) = self.rest.strip_prefix(quote)
                && let Some((text, rest)) = inner.split_once(quote)
            {
                self.rest = rest;
                return Ok(text);
            }
        }
        Err(self.unexpected("a string"))
    }

    fn take(&mut self, word: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, word: &str) -> Result<(), NpyError> {
        if self.take(word) {
            Ok(())
        } else {
            Err(self.unexpected(word))
        }
    }

    fn unexpected(&self, wanted: &str) -> NpyError {
        let found: String = self.rest.chars().take(20).collect();
        damaged(format!("{found:?} where {wanted} belongs"))
    }
}

fn damaged(reason: String) -> NpyError {
    NpyError::Header(reason)
}

fn read_exact(reader: &mut impl Read, bytes: &mut [u8]) -> Result<(), NpyError> {
    reader.read_exact(bytes).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => NpyError::NotNpy,
        _ => NpyError::Io(e),
    })
}
