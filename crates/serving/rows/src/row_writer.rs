//! Writes values into rows as little-endian floats, and checks that they are exact.
//!
//! Engine rows are `f32` or `f64`. An integer that the float cannot represent exactly is rejected
//! rather than rounded, because a split on an identifier would otherwise see a neighboring value.

use crate::InvalidRows;
use crate::categories::{CategoryColumns, REMEDY};
use crate::datatype::Datatype;
use crate::excerpt::excerpt;
use albacore_engine::ElementType;

/// Integers up to this magnitude are exact in a binary64.
const EXACT_IN_F64: i128 = 1 << 53;

/// Writes values sequentially into the memory of a reservation. Values beyond its end are counted
/// but not written; the caller compares the counts.
pub struct RowWriter<'a> {
    /// Name of the values in error messages.
    input: &'static str,
    datatype: Datatype,
    element: ElementType,
    /// The unwritten part of the memory.
    rest: &'a mut [u8],
    written: usize,
    /// The columns whose values may be texts of categories.
    category_columns: Option<CategoryColumns<'a>>,
}

impl<'a> RowWriter<'a> {
    /// Creates a writer of `datatype` values to `memory`, for the input tensor of protocol v2.
    pub fn new(datatype: Datatype, memory: &'a mut [u8]) -> Self {
        Self::for_input("input \"input\"", datatype, memory)
    }

    /// Creates a writer for values that error messages call `input`.
    pub fn for_input(input: &'static str, datatype: Datatype, memory: &'a mut [u8]) -> Self {
        Self {
            input,
            datatype,
            element: datatype.element(),
            rest: memory,
            written: 0,
            category_columns: None,
        }
    }

    /// Accepts texts of categories in these columns.
    pub(crate) fn with_categories(mut self, columns: CategoryColumns<'a>) -> Self {
        self.category_columns = Some(columns);
        self
    }

    /// Number of values so far, including those beyond the end.
    pub fn written(&self) -> usize {
        self.written
    }

    /// Number of values that fit into the rest of the memory.
    pub fn room(&self) -> usize {
        self.rest.len() / self.element.bytes()
    }

    /// Whether rows are `f32`.
    pub(crate) fn is_narrow(&self) -> bool {
        self.element != ElementType::F64
    }

    /// Name of the values in error messages.
    pub fn input(&self) -> &'static str {
        self.input
    }

    /// The declared data type of the values.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// Writes a float without a check.
    pub fn put_f32(&mut self, value: f32) {
        match self.element {
            ElementType::F64 => self.put(f64::from(value).to_le_bytes()),
            ElementType::F32 | ElementType::I32 => self.put(value.to_le_bytes()),
        }
    }

    /// Writes a float without a check; rounds it if rows are `f32`.
    pub fn put_f64(&mut self, value: f64) {
        match self.element {
            ElementType::F64 => self.put(value.to_le_bytes()),
            ElementType::F32 | ElementType::I32 => self.put((value as f32).to_le_bytes()),
        }
    }

    /// Writes an integer, after checking the range of the declared type and exactness.
    pub fn put_integer(&mut self, value: i128) -> Result<(), InvalidRows> {
        if let Some((least, most)) = self.datatype.integer_range()
            && !(least..=most).contains(&value)
        {
            return Err(self.error(&format!("{value} is outside of {least}..={most}")));
        }
        if value.abs() > EXACT_IN_F64 {
            return Err(self.error(&format!(
                "{value} cannot be represented exactly in 53 bits; send FP64 if rounding is wanted"
            )));
        }
        self.put_f64(value as f64); // exact: |value| <= 2^53, and <= 2^16 where rows are f32
        Ok(())
    }

    /// Writes the code of a category, given its text as a JSON string.
    pub(crate) fn put_category(&mut self, token: &str) -> Result<(), InvalidRows> {
        let code = match &self.category_columns {
            Some(columns) if columns.has_tables() => columns.code(self.written, token),
            columns => Err(format!(
                "`{}` is not a {} number{}",
                excerpt(token),
                self.datatype.name(),
                match columns {
                    Some(_) => format!(", and the model has no categories: {REMEDY}"),
                    None => "; send category strings as a separate input, of datatype BYTES and \
                             named as the column"
                        .to_owned(),
                }
            )),
        };
        self.put_f32(code.map_err(|problem| self.error(&problem))?);
        Ok(())
    }

    /// Returns an error that contains the index of the value.
    pub fn error(&self, problem: &str) -> InvalidRows {
        let (index, input, name) = (self.written, self.input, self.datatype.name());
        InvalidRows::new(format!("value {index} of {input} ({name}): {problem}"))
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.written += 1;
        let rest = std::mem::take(&mut self.rest);
        if let Some((cell, rest)) = rest.split_first_chunk_mut::<N>() {
            *cell = bytes;
            self.rest = rest;
        }
    }
}
