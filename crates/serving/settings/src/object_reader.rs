//! Reads a JSON object field by field. Each field is removed when it is read; the remaining fields
//! are unknown.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::validation_error::{ValidationError, quoted};

/// An object with the fields that have not been read yet.
pub(crate) struct ObjectReader {
    /// Path of the object, such as `models[0].slo`; empty for the root.
    path: String,
    remaining: Map<String, Value>,
    /// Names of all fields that were requested.
    expected: Vec<&'static str>,
    unknown_fields: UnknownFields,
}

/// Handling of unknown fields.
#[derive(Clone)]
pub(crate) enum UnknownFields {
    /// Rejects them: in a file written by a person, an unknown field is a spelling mistake.
    Reject,
    /// Counts them: in a line written by a program, another version may have added fields.
    Count(Rc<Cell<usize>>),
}

/// A field that is a string or an object.
pub(crate) enum StringOrObject {
    String(String),
    Object(ObjectReader),
}

/// A value that is a string or a number.
pub(crate) enum StringOrNumber {
    String(String),
    Number(u64),
}

impl ObjectReader {
    /// Wraps the root object; error messages call it `name`.
    pub(crate) fn root(
        name: &str,
        value: Value,
        unknown_fields: UnknownFields,
    ) -> Result<Self, ValidationError> {
        let mut root = Self::new(name.to_owned(), value, unknown_fields)?;
        root.path.clear();
        Ok(root)
    }

    fn new(
        path: String,
        value: Value,
        unknown_fields: UnknownFields,
    ) -> Result<Self, ValidationError> {
        match value {
            Value::Object(remaining) => Ok(Self {
                path,
                remaining,
                expected: Vec::new(),
                unknown_fields,
            }),
            other => Err(wrong_type(path, &other, "an object")),
        }
    }

    /// Returns the path of a field of this object.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// Removes a field and returns its path and value; `None` if it is absent or null.
    fn take(&mut self, name: &'static str) -> Option<(String, Value)> {
        self.expected.push(name);
        let value = self.remaining.shift_remove(name)?;
        (!value.is_null()).then(|| (self.path_of(name), value))
    }

    /// Removes an array and returns its path and elements; empty if it is absent or null.
    fn take_array(&mut self, name: &'static str) -> Result<(String, Vec<Value>), ValidationError> {
        match self.take(name) {
            None => Ok((String::new(), Vec::new())),
            Some((path, Value::Array(elements))) => Ok((path, elements)),
            Some((path, other)) => Err(wrong_type(path, &other, "a list")),
        }
    }

    /// Returns the error for an absent required field; `remedy` describes what to write.
    pub(crate) fn missing(&self, name: &str, remedy: &str) -> ValidationError {
        ValidationError::field(self.path_of(name), format!("is missing: {remedy}"))
    }

    pub(crate) fn string(&mut self, name: &'static str) -> Result<Option<String>, ValidationError> {
        self.take(name)
            .map(|(path, value)| string(path, value))
            .transpose()
    }

    /// Reads a list of strings; empty if it is absent.
    pub(crate) fn strings(&mut self, name: &'static str) -> Result<Vec<String>, ValidationError> {
        let (path, elements) = self.take_array(name)?;
        let elements = elements.into_iter().enumerate();
        elements
            .map(|(index, value)| string(format!("{path}[{index}]"), value))
            .collect()
    }

    /// Reads an object with arbitrary fields, each a list of strings; empty if it is absent.
    pub(crate) fn lists_of_strings(
        &mut self,
        name: &'static str,
    ) -> Result<BTreeMap<String, Vec<String>>, ValidationError> {
        let (path, fields) = match self.take(name) {
            None => return Ok(BTreeMap::new()),
            Some((path, Value::Object(fields))) => (path, fields),
            Some((path, other)) => return Err(wrong_type(path, &other, "an object of lists")),
        };
        let list = |(field, value): (String, Value)| {
            let path = format!("{path}.{}", quoted(&field));
            let Value::Array(elements) = value else {
                return Err(wrong_type(path, &value, "a list"));
            };
            let elements = elements.into_iter().enumerate();
            let texts = elements.map(|(index, value)| string(format!("{path}[{index}]"), value));
            Ok((field, texts.collect::<Result<_, _>>()?))
        };
        fields.into_iter().map(list).collect()
    }

    /// Reads a string and converts it with `parse`. The error of `parse` completes a sentence that
    /// begins with the value, as in `is not a duration`.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ValidationError> {
        let Some(text) = self.string(name)? else {
            return Ok(None);
        };
        parse(&text).map(Some).map_err(|problem| {
            let problem = format!("{} {problem}", quoted(&text));
            ValidationError::field(self.path_of(name), problem)
        })
    }

    pub(crate) fn u32(&mut self, name: &'static str) -> Result<Option<u32>, ValidationError> {
        let Some((path, value)) = self.take(name) else {
            return Ok(None);
        };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let error = || wrong_type(path, &value, "a whole number below 2^32");
        number.map(Some).ok_or_else(error)
    }

    pub(crate) fn u64(&mut self, name: &'static str) -> Result<Option<u64>, ValidationError> {
        self.take(name)
            .map(|(path, value)| whole_number(path, &value))
            .transpose()
    }

    /// Reads a list of whole numbers; empty if it is absent.
    pub(crate) fn u64s(&mut self, name: &'static str) -> Result<Vec<u64>, ValidationError> {
        let (path, elements) = self.take_array(name)?;
        let elements = elements.iter().enumerate();
        elements
            .map(|(index, value)| whole_number(format!("{path}[{index}]"), value))
            .collect()
    }

    pub(crate) fn f64(&mut self, name: &'static str) -> Result<Option<f64>, ValidationError> {
        let Some((path, value)) = self.take(name) else {
            return Ok(None);
        };
        let error = || wrong_type(path, &value, "a number");
        value.as_f64().map(Some).ok_or_else(error)
    }

    pub(crate) fn object(&mut self, name: &'static str) -> Result<Option<Self>, ValidationError> {
        self.take(name)
            .map(|(path, value)| Self::new(path, value, self.unknown_fields.clone()))
            .transpose()
    }

    /// Reads a list of objects; empty if it is absent.
    pub(crate) fn objects(&mut self, name: &'static str) -> Result<Vec<Self>, ValidationError> {
        let (path, elements) = self.take_array(name)?;
        let elements = elements.into_iter().enumerate();
        let object = |(index, value)| {
            let path = format!("{path}[{index}]");
            Self::new(path, value, self.unknown_fields.clone())
        };
        elements.map(object).collect()
    }

    /// Reads a string or an object; `remedy` describes what to write for any other type.
    pub(crate) fn string_or_object(
        &mut self,
        name: &'static str,
        remedy: &str,
    ) -> Result<Option<StringOrObject>, ValidationError> {
        match self.take(name) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(StringOrObject::String(text))),
            Some((path, value @ Value::Object(_))) => {
                let object = Self::new(path, value, self.unknown_fields.clone())?;
                Ok(Some(StringOrObject::Object(object)))
            }
            Some((path, other)) => {
                let shown = shown(&other);
                let problem = format!("{shown} is neither a string nor an object: {remedy}");
                Err(ValidationError::field(path, problem))
            }
        }
    }

    /// Reads a string or a whole number.
    pub(crate) fn string_or_number(
        &mut self,
        name: &'static str,
    ) -> Result<Option<StringOrNumber>, ValidationError> {
        match self.take(name) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(StringOrNumber::String(text))),
            Some((path, value)) => Ok(Some(StringOrNumber::Number(whole_number(path, &value)?))),
        }
    }

    /// Rejects or counts the fields that were not read.
    pub(crate) fn finish(self) -> Result<(), ValidationError> {
        if let UnknownFields::Count(count) = &self.unknown_fields {
            count.set(count.get() + self.remaining.len());
            return Ok(());
        }
        match self.remaining.keys().next() {
            None => Ok(()),
            Some(name) => {
                let expected = self.expected.join(", ");
                let problem = format!("is not a known field; known fields are {expected}");
                let path = self.path_of(&quoted(name));
                Err(ValidationError::field(path, problem))
            }
        }
    }
}

fn string(path: String, value: Value) -> Result<String, ValidationError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong_type(path, &other, "a string: put it in quotes")),
    }
}

fn whole_number(path: String, value: &Value) -> Result<u64, ValidationError> {
    let error = || wrong_type(path, value, "a whole number below 2^64");
    value.as_u64().ok_or_else(error)
}

fn wrong_type(path: String, value: &Value, expected: &str) -> ValidationError {
    ValidationError::field(path, format!("{} is not {expected}", shown(value)))
}

/// Formats a value of the wrong type for an error message.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null => "null".to_owned(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}
