//! Tables of rows in request bodies: KServe's V1 protocol, MLflow, SageMaker, Vertex AI.

use albacore_engine::ModelInfo;
use albacore_proto::array::Reader;
use serde::de::IgnoredAny;

use crate::categories::CategoryColumns;
use crate::columns::write_columns;
use crate::datatype::Datatype;
use crate::row_writer::RowWriter;
use crate::{ColumnOrder, InvalidRows, csv, json_values, objects};

/// Size of the shortest member of an object, `"":0,`.
const NAMED_VALUE_BYTES_MIN: usize = 5;

/// A table whose rows are counted and whose values are not checked yet.
#[derive(Debug)]
pub struct Table<'a> {
    /// Number of rows, at least one.
    pub rows: usize,
    /// Parameters of the request besides its rows.
    pub params: Params,
    key: RowsKey,
    values: Values<'a>,
}

/// Parameters of a request, under `params` (MLflow) or `parameters` (Vertex AI).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Overrides the predict function of the model.
    pub predict_function: Option<PredictFunction>,
}

/// The method of a scikit-learn classifier whose result is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictFunction {
    /// Returns classes.
    Predict,
    /// Returns probabilities.
    PredictProba,
}

/// The values of a table, as unparsed text.
#[derive(Debug)]
pub(crate) enum Values<'a> {
    /// A list of lists, with the column order if it differs from the model's.
    Lists(&'a str, Option<ColumnOrder>),
    /// A list of objects.
    Objects(&'a str),
    /// One list for each column of the model; `None` if the column is missing.
    Columns(Vec<Option<&'a str>>),
    /// The lines after the header, with the column order if it differs from the model's.
    Csv(csv::Lines<'a>, Option<ColumnOrder>),
}

/// The key of the rows in a body, and its name in error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsKey {
    Instances,
    Inputs,
    Split,
    Records,
    Csv,
}

impl RowsKey {
    pub(crate) const fn quoted(self) -> &'static str {
        match self {
            Self::Instances => "\"instances\"",
            Self::Inputs => "\"inputs\"",
            Self::Split => "\"dataframe_split\"",
            Self::Records => "\"dataframe_records\"",
            Self::Csv => "the text/csv body",
        }
    }

    pub(crate) fn invalid(self, problem: &str) -> InvalidRows {
        InvalidRows::new(format!("{} {problem}", self.quoted()))
    }
}

impl<'a> Table<'a> {
    pub(crate) fn new(
        model: &ModelInfo,
        key: RowsKey,
        rows: usize,
        values: Values<'a>,
        params: Params,
    ) -> Result<Self, InvalidRows> {
        if rows == 0 {
            return Err(key.invalid("is empty: send at least one row"));
        }
        // Checked before memory for the rows is allocated.
        let width = |order: &Option<ColumnOrder>| {
            let order = order.as_ref();
            order.map_or(model.features, ColumnOrder::width)
        };
        let (bytes, value_bytes_min, width) = match &values {
            Values::Lists(text, order) => (text.len(), 2, width(order)),
            Values::Objects(text) => match model.missing_is_nan {
                true => (text.len(), NAMED_VALUE_BYTES_MIN, 1),
                false => (text.len(), NAMED_VALUE_BYTES_MIN, model.features),
            },
            Values::Columns(columns) => {
                let present = || columns.iter().flatten();
                let bytes = present().map(|text| text.len()).sum();
                (bytes, 2, present().count())
            }
            // An empty field has only its separator; the last line may have no line ending.
            Values::Csv(lines, order) => (lines.bytes() + 1, 1, width(order)),
        };
        if bytes / value_bytes_min < rows.saturating_mul(width) {
            let problem = format!("has less data than {rows} rows of {width} values");
            return Err(key.invalid(&problem));
        }
        Ok(Self {
            rows,
            params,
            key,
            values,
        })
    }

    /// Checks the values and writes them as rows of `datatype` for `model`.
    ///
    /// # Errors
    /// A value or a name is invalid, or a row has the wrong length.
    pub fn write(
        &self,
        model: &ModelInfo,
        datatype: Datatype,
        memory: &mut [u8],
    ) -> Result<(), InvalidRows> {
        let input = self.key.quoted();
        let features = model.features;
        match &self.values {
            Values::Columns(columns) => {
                let element = datatype.element();
                write_columns(features, element, memory, |index, buffer| {
                    let Some(text) = columns[index] else {
                        return Ok(None);
                    };
                    buffer.resize(self.rows * element.bytes(), 0);
                    let writer = RowWriter::for_input(input, datatype, buffer)
                        .with_categories(CategoryColumns::single(model, index));
                    json_values::write_json(writer, 1, text)?;
                    Ok(Some(element))
                })
            }
            Values::Lists(text, Some(order)) => order.write(datatype.element(), memory, |memory| {
                let writer = RowWriter::for_input(input, datatype, memory)
                    .with_categories(CategoryColumns::new(model, Some(order)));
                json_values::write_json(writer, order.width(), text)
            }),
            Values::Lists(text, None) => {
                let writer = RowWriter::for_input(input, datatype, memory)
                    .with_categories(CategoryColumns::new(model, None));
                json_values::write_json(writer, features, text)
            }
            Values::Objects(text) => {
                let writer = RowWriter::for_input(input, datatype, memory);
                objects::write_objects(model, writer, text)
            }
            Values::Csv(lines, order) => {
                let writer = RowWriter::for_input(input, datatype, memory);
                csv::write(writer, model, lines, order.as_ref())
            }
        }
    }
}

/// Counts the rows in the text of a list of lists or objects.
pub(crate) fn count_rows<'a>(
    model: &ModelInfo,
    key: RowsKey,
    text: &'a str,
) -> Result<(usize, Values<'a>), InvalidRows> {
    let mut reader = Reader::new(text);
    if !reader.take(b'[') {
        return Err(key.invalid("is not a list of rows"));
    }
    let members = || {
        let rows = serde_json::from_str::<Vec<IgnoredAny>>(text);
        rows.map(|rows| rows.len())
            .map_err(|error| key.invalid(&format!("is not a list: {error}")))
    };
    match reader.peek() {
        // Minus one for the bracket of the list itself.
        Some(b'[') => {
            let brackets = match may_have_strings(model, text) {
                true => brackets_outside_strings(text),
                // Texts are rejected later.
                false => text.bytes().filter(|&byte| byte == b'[').count(),
            };
            Ok((brackets - 1, Values::Lists(text, None)))
        }
        Some(b'{') => Ok((members()?, Values::Objects(text))),
        Some(b']') => Err(key.invalid("is empty: send at least one row")),
        _ => Err(key.invalid(
            "has values where rows should be: send [[1, 2], [3, 4]], or \
             [{\"age\": 1, \"amount\": 2}]",
        )),
    }
}

/// Whether brackets in the JSON may be inside of texts of categories.
pub(crate) fn may_have_strings(model: &ModelInfo, json: &str) -> bool {
    !model.columns.categories.is_empty() && json.contains('"')
}

fn brackets_outside_strings(json: &str) -> usize {
    let (mut brackets, mut is_string, mut is_escaped) = (0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            b'[' if !is_string => brackets += 1,
            _ => {}
        }
    }
    brackets
}

#[cfg(test)]
mod tests;
