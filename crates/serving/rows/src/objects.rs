//! Writes rows that are JSON objects of values keyed by column name, in any order.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt;

use albacore_engine::ModelInfo;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::InvalidRows;
use crate::categories::CategoryColumns;
use crate::excerpt::excerpt;
use crate::json_values;
use crate::row_writer::RowWriter;
use crate::table_json::Name;

/// Writes the list of objects in `text`. If the model has no column names, the keys are column
/// numbers.
pub(crate) fn write_objects(
    model: &ModelInfo,
    writer: RowWriter<'_>,
    text: &str,
) -> Result<(), InvalidRows> {
    let input = writer.input();
    let numbers: Vec<String>;
    let names = match &model.columns.names[..] {
        [] => {
            numbers = (0..model.features)
                .map(|column| column.to_string())
                .collect();
            &numbers[..]
        }
        names => names,
    };
    let writer = writer.with_categories(CategoryColumns::new(model, None));
    let mut row_error = None;
    let rows = ObjectRows {
        model,
        names,
        writer,
        row_error: &mut row_error,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = rows.deserialize(&mut json);
    match (row_error, read) {
        (Some(error), _) => Err(error),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => {
            let message = format!("{input} is not a list of objects: {error}");
            Err(InvalidRows::new(message))
        }
    }
}

/// Deserializes rows one at a time, so that at most one is in memory.
struct ObjectRows<'a> {
    model: &'a ModelInfo,
    /// Column names of the model.
    names: &'a [String],
    writer: RowWriter<'a>,
    /// The error of the rejected row.
    row_error: &'a mut Option<InvalidRows>,
}

impl<'de> DeserializeSeed<'de> for ObjectRows<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ObjectRows<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut row = ObjectRow::new(self.names, self.model);
        let mut writer = self.writer;
        let mut index = 0;
        // bound: rows of the body
        while let Some(object) = list.next_element::<Object<'de>>()? {
            if self.row_error.is_none() {
                let written = row.write(&object, &mut writer);
                *self.row_error = written.err().map(|problem| {
                    let (row, model) = (row_noun(writer.input()), &self.model.name);
                    InvalidRows::new(format!("{row} {index}, model {model:?}: {problem}"))
                });
            }
            index += 1;
        }
        Ok(())
    }
}

/// The members of a JSON object, in the order of the text.
struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object, as the first row is one")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members = Vec::new();
                // bound: members in the body
                while let Some(name) = map.next_key::<Name<'de>>()? {
                    members.push((name.0, map.next_value()?));
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Column positions of a model, and the values of the current row.
struct ObjectRow<'a, 'de> {
    names: &'a [String],
    /// Whether the model file has no column names.
    is_nameless: bool,
    /// Whether missing columns are NaN. A row without any column is rejected.
    missing_is_nan: bool,
    positions: OnceCell<HashMap<&'a str, usize>>,
    values: Vec<Option<&'de str>>,
}

impl<'a, 'de> ObjectRow<'a, 'de> {
    fn new(names: &'a [String], model: &ModelInfo) -> Self {
        Self {
            names,
            is_nameless: model.columns.names.is_empty(),
            missing_is_nan: model.missing_is_nan,
            positions: OnceCell::new(),
            values: vec![None; names.len()],
        }
    }

    fn write(&mut self, object: &Object<'de>, writer: &mut RowWriter<'_>) -> Result<(), String> {
        self.values.fill(None);
        for (index, (name, value)) in object.0.iter().enumerate() {
            let position = self.position(index, name);
            let position = position.ok_or_else(|| self.unknown_column_error(name))?;
            if self.values[position].replace(value.get()).is_some() {
                return Err(format!("column {:?} is given twice", excerpt(name)));
            }
        }
        let may_be_missing = self.missing_is_nan && !object.0.is_empty();
        for (name, value) in self.names.iter().zip(&self.values) {
            let named = |problem: &str| format!("column {:?}{problem}", excerpt(name));
            let value = match value {
                Some(value) => value,
                None if may_be_missing => "null",
                None => return Err(named(" is missing")),
            };
            let written = json_values::write_value(value, writer);
            written.map_err(|error| named(&format!(": {}", error.message)))?;
        }
        Ok(())
    }

    fn unknown_column_error(&self, name: &str) -> String {
        let name = excerpt(name);
        match self.is_nameless {
            true => format!(
                "column {name:?} is unknown: the columns have no names: send lists, or call them \
                 \"0\", \"1\" and so on"
            ),
            false => format!("column {name:?} is unknown"),
        }
    }

    /// Position of the column with this name. Tries `index` first, because most clients send
    /// columns in the model's order.
    fn position(&self, index: usize, name: &str) -> Option<usize> {
        if self
            .names
            .get(index)
            .is_some_and(|expected| expected == name)
        {
            return Some(index);
        }
        let positions = self.positions.get_or_init(|| {
            let names = self.names.iter().enumerate();
            names
                .map(|(position, name)| (name.as_str(), position))
                .collect()
        });
        positions.get(name).copied()
    }
}

/// The word for a row of this input in error messages.
fn row_noun(input: &str) -> &'static str {
    match input {
        "\"instances\"" => "instance",
        _ => "record",
    }
}
