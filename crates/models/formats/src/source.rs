//! What the XGBoost reader asks of JSON and UBJSON alike: a pull reader that turns the arrays it is
//! asked for into typed vectors at once, so that no tree of values is ever built.

use crate::error::ModelError;

pub(crate) type Read<T> = Result<T, ModelError>;

/// A reader that stands before a value.
pub(crate) trait Source {
    /// Reads an object: calls `field` with each key, standing before its value, which it must read
    /// or [`skip`](Self::skip).
    fn object(&mut self, field: &mut dyn FnMut(&mut Self, &str) -> Read<()>) -> Read<()>;

    /// Reads an array: calls `element` with each index, standing before the element.
    fn array(&mut self, element: &mut dyn FnMut(&mut Self, usize) -> Read<()>) -> Read<()>;

    fn string(&mut self) -> Read<String>;

    /// Reads an array of numbers as the nearest `f32` values: at most `most`.
    fn floats(&mut self, most: usize) -> Read<Vec<f32>>;

    /// Reads an array of integers (booleans count as 0 and 1): at most `most`.
    fn integers(&mut self, most: usize) -> Read<Vec<i32>>;

    /// Reads over any value.
    fn skip(&mut self) -> Read<()>;

    /// Checks that nothing but white space follows.
    fn finish(&mut self) -> Read<()>;
}

/// Refuses an array of more elements than a field may have.
pub(crate) fn check_length(length: usize, most: usize) -> Read<()> {
    match length <= most {
        true => Ok(()),
        false => Err(ModelError::too_large(format!(
            "an array of more than {most} elements"
        ))),
    }
}
