//! Values on their way into a row: checked for exactness and written as little-endian floats.
//!
//! The engine takes rows of `f32` or `f64`. A value that the row's float cannot hold exactly is
//! refused rather than rounded: a split on an identifier must not see its neighbor.

use super::datatype::Datatype;
use super::refused::Refused;
use albacore_engine::ElementType;

/// Integers up to this magnitude are exact in a binary64.
const EXACT_IN_F64: i128 = 1 << 53;

/// Writes values one after the other into the memory of a reservation.
pub(super) struct Cells<'a> {
    datatype: Datatype,
    element: ElementType,
    /// What is not yet written.
    rest: &'a mut [u8],
    written: usize,
}

impl<'a> Cells<'a> {
    /// Cells of `datatype` over the whole of `memory`.
    pub(super) fn new(datatype: Datatype, memory: &'a mut [u8]) -> Self {
        Self {
            datatype,
            element: datatype.element(),
            rest: memory,
            written: 0,
        }
    }

    /// How many values were written.
    pub(super) fn written(&self) -> usize {
        self.written
    }

    /// The data type that the values were declared to have.
    pub(super) fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// Writes a float that needs no check. A value too many is dropped: the caller compares the
    /// counts.
    pub(super) fn put_f32(&mut self, value: f32) {
        match self.element {
            ElementType::F64 => self.put(f64::from(value).to_le_bytes()),
            ElementType::F32 | ElementType::I32 => self.put(value.to_le_bytes()),
        }
    }

    /// Writes a float that needs no check; a row of `f32` rounds it.
    pub(super) fn put_f64(&mut self, value: f64) {
        match self.element {
            ElementType::F64 => self.put(value.to_le_bytes()),
            ElementType::F32 | ElementType::I32 => self.put((value as f32).to_le_bytes()),
        }
    }

    /// Writes an integer, checked against the range of the declared type and against exactness.
    pub(super) fn put_integer(&mut self, value: i128) -> Result<(), Refused> {
        if let Some((least, most)) = self.datatype.integers()
            && !(least..=most).contains(&value)
        {
            return Err(self.refused(&format!("{value} is outside of {least}..={most}")));
        }
        if value.abs() > EXACT_IN_F64 {
            return Err(self.refused(&format!(
                "{value} cannot be held exactly in 53 bits; send FP64 if rounding is wanted"
            )));
        }
        self.put_f64(value as f64); // exact: |value| <= 2^53, and <= 2^16 where rows are f32
        Ok(())
    }

    /// A refusal that names the value by its place.
    pub(super) fn refused(&self, what: &str) -> Refused {
        let (place, name) = (self.written, self.datatype.name());
        Refused::invalid(format!("value {place} of input \"input\" ({name}): {what}"))
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
