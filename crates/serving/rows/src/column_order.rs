//! Maps the columns of a model to the columns of a request that names them.
//!
//! The columns of a model without names are called by their numbers, "0", "1" and so on, as in
//! pandas; the numbers are also accepted for LightGBM's default names (`Column_0`). A column that
//! is missing in the request is an error, or NaN if the settings of the model say so.

use std::collections::HashMap;

use albacore_engine::{ElementType, ModelInfo};

use crate::InvalidRows;
use crate::excerpt::{excerpt, some_names};

/// For each column of a model, its position in the rows of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnOrder {
    /// `None` for a column that is missing in the request.
    sources: Vec<Option<usize>>,
    /// Number of columns in the request.
    width: usize,
}

impl ColumnOrder {
    /// Matches `names` with the columns of `model`; `None` if they are in the model's order.
    ///
    /// # Errors
    /// A name is unknown or a duplicate; a column is missing, or all are if some may be missing.
    pub fn find(model: &ModelInfo, names: &[impl AsRef<str>]) -> Result<Option<Self>, InvalidRows> {
        let columns = ColumnNames::new(model);
        if columns.are_in_order(names) {
            return Ok(None);
        }
        let positions = columns.positions();
        let mut sources = vec![None; model.features];
        let mut unknown = Vec::new();
        for (source, name) in names.iter().enumerate() {
            let name = name.as_ref();
            match positions.get(name) {
                None => unknown.push(name),
                Some(&index) if sources[index].is_some() => {
                    let name = excerpt(name);
                    return Err(columns.error(&format!("column {name:?} is given twice")));
                }
                Some(&index) => sources[index] = Some(source),
            }
        }
        if !unknown.is_empty() {
            return Err(columns.unknown_error(&unknown));
        }
        let missing = (0..model.features).filter(|&index| sources[index].is_none());
        let missing: Vec<String> = missing.map(|index| model.columns.name(index)).collect();
        let may_be_missing = model.missing_is_nan && !names.is_empty();
        if !missing.is_empty() && !may_be_missing {
            let names = some_names(missing.iter().map(String::as_str));
            let are = if missing.len() == 1 { "is" } else { "are" };
            return Err(columns.error(&format!(
                "column {names} {are} missing: send null where a value is not known"
            )));
        }
        Ok(Some(Self {
            sources,
            width: names.len(),
        }))
    }

    /// For each column of the model, its position in a request row; `None` if it is missing.
    #[must_use]
    pub fn sources(&self) -> &[Option<usize>] {
        &self.sources
    }

    /// Number of columns in the request: at least one, at most those of the model.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// For each column of the request, its column of the model.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let mut columns = vec![0; self.width];
        for (column, source) in self.sources.iter().enumerate() {
            if let Some(position) = source {
                columns[*position] = column;
            }
        }
        columns
    }

    /// Calls `write` to write the rows of the request to the beginning of `memory`, then reorders
    /// them in place into the model's order. Values have type `element`.
    ///
    /// # Errors
    /// The error of `write`.
    pub fn write<E>(
        &self,
        element: ElementType,
        memory: &mut [u8],
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = element.bytes();
        let rows = memory.len() / (self.sources.len() * bytes).max(1);
        write(&mut memory[..rows * self.width * bytes])?;
        self.expand(element, memory);
        Ok(())
    }

    /// Expands the request rows at the beginning of `memory` to model rows, from the last to the
    /// first, so that no row is overwritten before it is read.
    fn expand(&self, element: ElementType, memory: &mut [u8]) {
        let bytes = element.bytes();
        let (from, to) = (self.width * bytes, self.sources.len() * bytes);
        let mut before = vec![0; from];
        for row in (0..memory.len() / to.max(1)).rev() {
            before.copy_from_slice(&memory[row * from..][..from]);
            let values = memory[row * to..][..to].chunks_exact_mut(bytes);
            for (value, source) in values.zip(&self.sources) {
                match source {
                    Some(source) => value.copy_from_slice(&before[source * bytes..][..bytes]),
                    None => put_nan(element, value),
                }
            }
        }
    }
}

/// Writes a missing value.
pub(crate) fn put_nan(element: ElementType, cell: &mut [u8]) {
    match element {
        ElementType::F64 => cell.copy_from_slice(&f64::NAN.to_le_bytes()),
        ElementType::F32 | ElementType::I32 => cell.copy_from_slice(&f32::NAN.to_le_bytes()),
    }
}

/// Column names of a model.
struct ColumnNames<'a> {
    model: &'a ModelInfo,
    names: &'a [String],
    /// Whether column numbers are accepted as names.
    is_numbered: bool,
}

impl<'a> ColumnNames<'a> {
    fn new(model: &'a ModelInfo) -> Self {
        Self {
            model,
            names: &model.columns.names,
            is_numbered: model.columns.are_numbered(),
        }
    }

    fn are_in_order(&self, names: &[impl AsRef<str>]) -> bool {
        let is_in_order = |(index, name): (usize, &str)| {
            self.names
                .get(index)
                .is_some_and(|expected| expected == name)
                || self.is_numbered && is_number(name, index)
        };
        let names_as_text = names.iter().map(AsRef::as_ref);
        names.len() == self.model.features && names_as_text.enumerate().all(is_in_order)
    }

    fn positions(&self) -> HashMap<std::borrow::Cow<'a, str>, usize> {
        let named = self.names.iter().map(String::as_str).enumerate();
        let numbers = 0..if self.is_numbered {
            self.model.features
        } else {
            0
        };
        let numbers = numbers.map(|index| (index.to_string().into(), index));
        named
            .map(|(index, name)| (name.into(), index))
            .chain(numbers)
            .collect()
    }

    fn unknown_error(&self, names: &[&str]) -> InvalidRows {
        let unknown = some_names(names.iter().copied());
        let are = if names.len() == 1 { "is" } else { "are" };
        if self.names.is_empty() {
            return self.error(&format!(
                "column {unknown} {are} unknown: the model's file has no column names, so the \
                 columns are called \"0\", \"1\" and so on; send rows without names, or train with \
                 named columns"
            ));
        }
        let known = some_names(self.names.iter().map(String::as_str));
        self.error(&format!(
            "column {unknown} {are} unknown; the model has {known}"
        ))
    }

    fn error(&self, problem: &str) -> InvalidRows {
        let name = &self.model.name;
        InvalidRows::new(format!("model {name:?}: {problem}"))
    }
}

/// Whether `name` is the decimal number `index` without leading zeros.
fn is_number(name: &str, index: usize) -> bool {
    name.parse() == Ok(index) && (name == "0" || !name.starts_with(['0', '+']))
}

#[cfg(test)]
mod tests;
