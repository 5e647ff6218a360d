//! Converts the texts of categories to the integer codes of training, which the trees contain.
//!
//! A number is a code in every format; a text is a category if its column has a table of
//! categories. `null` and the empty text are missing values, unless the empty text is a category.

use std::borrow::Cow;

use albacore_engine::{CategoryTable, ModelInfo, UnknownCategory};
use albacore_proto::array::Reader;
use albacore_proto::inference::InferTensorContents;

use crate::excerpt::{excerpt, some_names};
use crate::{ColumnOrder, InvalidRows, binary_values};

/// Size of the length prefix of each text in a binary tensor.
pub(crate) const LENGTH_BYTES: usize = 4;

/// Advice in the error for a text in a column without a table.
pub(crate) const REMEDY: &str = "send the codes that it was trained with as numbers, or list the \
                                 column's strings in \"categories\" of the model";

/// Returns the code of a text, NaN for a missing value.
///
/// # Errors
/// The text is not a category. The message begins with the text.
pub(crate) fn code(table: &CategoryTable, text: &str) -> Result<f32, String> {
    match table.code(text) {
        Some(code) => Ok(code as f32), // exact: below 2^24
        None if text.is_empty() || table.unknown() == UnknownCategory::Missing => Ok(f32::NAN),
        None => {
            let known = some_names(table.texts().iter().map(AsRef::as_ref));
            Err(format!(
                "{:?} is not one of the categories {known}",
                excerpt(text)
            ))
        }
    }
}

/// The model columns to which the values of a row belong.
#[derive(Clone, Debug)]
pub(crate) struct CategoryColumns<'a> {
    model: &'a ModelInfo,
    columns: RowColumns,
}

/// The model columns of a row.
#[derive(Clone, Debug)]
enum RowColumns {
    /// All columns, in the model's order.
    All,
    One(usize),
    /// Model columns by position in the row.
    Some(Vec<usize>),
}

impl<'a> CategoryColumns<'a> {
    /// For rows with the columns of `order`; `None` means all columns in the model's order.
    pub(crate) fn new(model: &'a ModelInfo, order: Option<&ColumnOrder>) -> Self {
        // The order is not used without categories.
        let order = order.filter(|_| !model.columns.categories.is_empty());
        Self {
            model,
            columns: order.map_or(RowColumns::All, |order| RowColumns::Some(order.columns())),
        }
    }

    /// For rows with one column of the model.
    pub(crate) fn single(model: &'a ModelInfo, column: usize) -> Self {
        Self {
            model,
            columns: RowColumns::One(column),
        }
    }

    /// Whether any column of the model has categories.
    pub(crate) fn has_tables(&self) -> bool {
        !self.model.columns.categories.is_empty()
    }

    /// Returns the code for the JSON string `token`, which is value number `index`.
    pub(crate) fn code(&self, index: usize, token: &str) -> Result<f32, String> {
        let column = match &self.columns {
            RowColumns::All => index % self.model.features.max(1),
            RowColumns::One(column) => *column,
            RowColumns::Some(columns) => {
                let position = index % columns.len().max(1);
                columns.get(position).copied().unwrap_or_default()
            }
        };
        let column_error = |problem: &str| {
            let name = self.model.columns.name(column);
            format!("column {:?}: {problem}", excerpt(&name))
        };
        let Some(table) = self.model.columns.categories.get(&column) else {
            let problem = format!("`{}` is a string, and the column has no", excerpt(token));
            return Err(column_error(&format!("{problem} categories: {REMEDY}")));
        };
        let Ok(text) = decode_json_string(token) else {
            return Err(column_error(&format!(
                "`{}` is not a valid string",
                excerpt(token)
            )));
        };
        code(table, &text).map_err(|problem| column_error(&problem))
    }
}

/// Decodes a JSON string.
fn decode_json_string(token: &str) -> serde_json::Result<Cow<'_, str>> {
    let plain = token.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    match plain {
        Some(text) if !text.contains(['\\', '"']) && !text.contains(char::is_control) => {
            Ok(Cow::Borrowed(text))
        }
        _ => serde_json::from_str::<String>(token).map(Cow::Owned),
    }
}

/// Writes codes sequentially, as `f32`.
struct CodeWriter<'a> {
    table: &'a CategoryTable,
    memory: &'a mut [u8],
    written: usize,
}

impl<'a> CodeWriter<'a> {
    fn new(table: &'a CategoryTable, memory: &'a mut [u8]) -> Self {
        Self {
            table,
            memory,
            written: 0,
        }
    }

    fn put(&mut self, text: &str) -> Result<(), InvalidRows> {
        let code = code(self.table, text).map_err(|problem| self.error(&problem))?;
        self.put_code(code);
        Ok(())
    }

    fn put_code(&mut self, code: f32) {
        let cells = self.memory.as_chunks_mut().0;
        if let Some(cell) = cells.get_mut(self.written) {
            *cell = code.to_le_bytes();
        }
        self.written += 1;
    }

    /// Returns an error that contains the index of the value.
    fn error(&self, problem: &str) -> InvalidRows {
        InvalidRows::new(format!("value {}: {problem}", self.written))
    }

    /// Checks that all memory was written.
    fn finish(self) -> Result<(), InvalidRows> {
        let (have, need) = (self.written, self.memory.len() / size_of::<f32>());
        match have == need {
            true => Ok(()),
            false => Err(InvalidRows::new(format!(
                "has {have} strings where its shape needs {need}"
            ))),
        }
    }
}

/// Writes the codes of a list of strings as `f32`. The list is flat, or nested with one string per
/// inner list.
pub(crate) fn write_json(
    table: &CategoryTable,
    text: &str,
    memory: &mut [u8],
) -> Result<(), InvalidRows> {
    let mut reader = Reader::new(text);
    let mut writer = CodeWriter::new(table, memory);
    let cut_off = |writer: &CodeWriter<'_>| writer.error("the list of strings is malformed");
    if !reader.take(b'[') {
        return Err(InvalidRows::new("the data is not a list"));
    }
    let mut is_end = reader.take(b']');
    while !is_end {
        // bound: each pass consumes a text of the list
        let is_nested = reader.take(b'[');
        let token = reader.string_or_token();
        if token.starts_with('"') {
            let text = decode_json_string(token).map_err(|_| {
                writer.error(&format!("`{}` is not a valid string", excerpt(token)))
            })?;
            writer.put(&text)?;
        } else if token == "null" {
            writer.put_code(f32::NAN);
        } else {
            let problem = format!(
                "`{}` is not a string; send codes as numbers of another datatype",
                excerpt(token)
            );
            return Err(writer.error(&problem));
        }
        if is_nested && !reader.take(b']') {
            return Err(cut_off(&writer));
        }
        is_end = reader.take(b']');
        if !is_end && !reader.take(b',') {
            return Err(cut_off(&writer));
        }
    }
    if reader.peek().is_some() {
        return Err(InvalidRows::new(
            "unexpected data after the list of strings",
        ));
    }
    writer.finish()
}

/// Writes the codes of a binary tensor: each text follows its length in bytes as a `u32`.
pub(crate) fn write_bytes(
    table: &CategoryTable,
    mut tensor: &[u8],
    memory: &mut [u8],
) -> Result<(), InvalidRows> {
    let mut writer = CodeWriter::new(table, memory);
    // bound: each pass consumes at least four bytes of the tensor
    while !tensor.is_empty() {
        let text = tensor
            .split_first_chunk::<LENGTH_BYTES>()
            .and_then(|(length, rest)| {
                let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
                rest.split_at_checked(length)
            });
        let Some((text, rest)) = text else {
            let problem = "its string is incomplete: a string follows its length in four bytes, \
                           little-endian";
            return Err(writer.error(problem));
        };
        put_utf8(&mut writer, text)?;
        tensor = rest;
    }
    writer.finish()
}

/// Writes the codes of typed gRPC contents.
pub(crate) fn write_contents(
    table: &CategoryTable,
    contents: &InferTensorContents,
    memory: &mut [u8],
) -> Result<(), InvalidRows> {
    if binary_values::value_count(contents) != contents.bytes_contents.len() {
        let problem = "BYTES uses bytes_contents only, but other lists have values";
        return Err(InvalidRows::new(problem));
    }
    let mut writer = CodeWriter::new(table, memory);
    for text in &contents.bytes_contents {
        put_utf8(&mut writer, text)?;
    }
    writer.finish()
}

fn put_utf8(writer: &mut CodeWriter<'_>, text: &[u8]) -> Result<(), InvalidRows> {
    match std::str::from_utf8(text) {
        Ok(text) => writer.put(text),
        Err(error) => {
            let valid = error.valid_up_to();
            Err(writer.error(&format!("its string is not UTF-8 after {valid} bytes")))
        }
    }
}

#[cfg(test)]
mod tests;
