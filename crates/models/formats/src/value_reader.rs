//! The pull parser interface shared by JSON and UBJSON: arrays are read directly into typed
//! vectors, without building a tree of values.

use std::ops::Deref;

use crate::error::{ModelError, ModelResult};

/// A reader positioned before a value.
pub(crate) trait ValueReader {
    /// Reads an object and calls `field` with each key; `field` must read or [`skip`](Self::skip)
    /// the value.
    fn object(
        &mut self,
        field: &mut dyn FnMut(&mut Self, &str) -> ModelResult<()>,
    ) -> ModelResult<()>;

    /// Reads an array and calls `element` with each index; `element` must read or skip the element.
    fn array(
        &mut self,
        element: &mut dyn FnMut(&mut Self, usize) -> ModelResult<()>,
    ) -> ModelResult<()>;

    fn string(&mut self) -> ModelResult<String>;

    /// Reads an array of at most `most` numbers, each rounded to the nearest `f32`.
    fn floats(&mut self, most: usize) -> ModelResult<Vec<f32>>;

    /// Reads an array of at most `most` integers; booleans are read as 0 and 1.
    fn integers(&mut self, most: usize) -> ModelResult<Vec<i32>>;

    /// Reads an array of at most `most` 64-bit integers.
    fn wide_integers(&mut self, most: usize) -> ModelResult<Vec<i64>>;

    fn skip(&mut self) -> ModelResult<()>;

    /// Checks that only white space follows.
    fn finish(&mut self) -> ModelResult<()>;
}

/// Rejects an array with more elements than a field may have.
pub(crate) fn check_length(length: usize, most: usize) -> ModelResult<()> {
    match length <= most {
        true => Ok(()),
        false => Err(ModelError::too_large(format!(
            "an array of more than {most} elements"
        ))),
    }
}

/// Stores the value of a key that may appear only once.
pub(crate) fn put_once<T>(slot: &mut Option<T>, value: T) -> ModelResult<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ModelError::inconsistent("", "the key appears twice")),
    }
}

/// Returns the value of a required key.
pub(crate) fn required<T>(slot: Option<T>, path: &str) -> ModelResult<T> {
    slot.ok_or_else(|| ModelError::inconsistent(path, "the key is missing"))
}

/// Returns a required column of a tree's node table, with one entry per node.
pub(crate) fn column<T, C: Deref<Target = [T]>>(
    column: Option<C>,
    name: &str,
    length: usize,
) -> ModelResult<C> {
    let column = required(column, name)?;
    match column.len() == length {
        true => Ok(column),
        false => {
            let reason = format!("{} entries instead of {length}", column.len());
            Err(ModelError::inconsistent(name, reason))
        }
    }
}
