//! A table of rows in the body of a request: KServe's V1 protocol, MLflow, SageMaker, Vertex AI.

use albacore_engine::ModelInfo;
use albacore_proto::array::Reader;
use serde::de::IgnoredAny;

use crate::categories::TextColumns;
use crate::columns::write_columns;
use crate::datatype::Datatype;
use crate::row_writer::RowWriter;
use crate::{ColumnOrder, InvalidRows, csv, json_values, objects};

/// The shortest text of a value in an object, `"":0,`.
const NAMED_VALUE_BYTES_MIN: usize = 5;

/// Rows that are counted, whose values are not checked yet.
#[derive(Debug)]
pub struct Table<'a> {
    /// At least one.
    pub rows: usize,
    /// What the request asks for beside its rows.
    pub params: Params,
    key: Key,
    values: Values<'a>,
}

/// Parameters of a request, under `params` (MLflow) or `parameters` (Vertex AI).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// In place of the model's own.
    pub predict_function: Option<PredictFunction>,
}

/// What a classifier answers, by the names of scikit-learn's methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictFunction {
    /// Classes.
    Predict,
    /// Probabilities.
    PredictProba,
}

/// The values of a table, as text.
#[derive(Debug)]
pub(crate) enum Values<'a> {
    /// A list of lists, with the order of their columns if it is not the model's.
    Lists(&'a str, Option<ColumnOrder>),
    /// A list of objects.
    Objects(&'a str),
    /// By column of the model, a list each; `None` for one that is missing.
    Columns(Vec<Option<&'a str>>),
    /// Lines after the header.
    Csv(csv::Lines<'a>, Option<ColumnOrder>),
}

/// The key of some rows in a body, with what messages call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Instances,
    Inputs,
    Split,
    Records,
    Csv,
}

impl Key {
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
        key: Key,
        rows: usize,
        values: Values<'a>,
        params: Params,
    ) -> Result<Self, InvalidRows> {
        if rows == 0 {
            return Err(key.invalid("is empty: send at least one row"));
        }
        // Before memory is allocated for them.
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
            // An empty field has a separator alone; the last line may have no end.
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
    /// A value, a name or the length of a row is wrong.
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
                write_columns(features, element, memory, |place, column| {
                    let Some(text) = columns[place] else {
                        return Ok(None);
                    };
                    column.resize(self.rows * element.bytes(), 0);
                    let writer = RowWriter::of_input(input, datatype, column)
                        .with_texts(TextColumns::one(model, place));
                    json_values::write_json(writer, 1, text)?;
                    Ok(Some(element))
                })
            }
            Values::Lists(text, Some(order)) => order.write(datatype.element(), memory, |memory| {
                let writer = RowWriter::of_input(input, datatype, memory)
                    .with_texts(TextColumns::new(model, Some(order)));
                json_values::write_json(writer, order.width(), text)
            }),
            Values::Lists(text, None) => {
                let writer = RowWriter::of_input(input, datatype, memory)
                    .with_texts(TextColumns::new(model, None));
                json_values::write_json(writer, features, text)
            }
            Values::Objects(text) => {
                let writer = RowWriter::of_input(input, datatype, memory);
                objects::write_objects(model, writer, text)
            }
            Values::Csv(lines, order) => {
                let writer = RowWriter::of_input(input, datatype, memory);
                csv::write(writer, model, lines, order.as_ref())
            }
        }
    }
}

/// Counts the rows in the text of a list, whose members are lists or objects.
pub(crate) fn count_rows<'a>(
    model: &ModelInfo,
    key: Key,
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
        // The first bracket is that of the list.
        Some(b'[') => {
            let brackets = match may_have_texts(model, text) {
                true => brackets_outside_of_texts(text),
                // A text is refused later.
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

/// Whether brackets in JSON may be part of texts of categories.
pub(crate) fn may_have_texts(model: &ModelInfo, json: &str) -> bool {
    !model.columns.categories.is_empty() && json.contains('"')
}

fn brackets_outside_of_texts(json: &str) -> usize {
    let (mut brackets, mut is_text, mut is_escaped) = (0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'[' if !is_text => brackets += 1,
            _ => {}
        }
    }
    brackets
}

#[cfg(test)]
mod tests;
