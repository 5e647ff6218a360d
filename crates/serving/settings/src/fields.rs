//! Takes an object apart, field by field. Each field is taken once; what is left at the end is
//! unknown.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::invalid::{Invalid, quoted};

/// The fields of one object that were not taken yet.
pub(crate) struct Fields {
    /// Where the object is; empty for the whole.
    at: String,
    left: Map<String, Value>,
    known: Vec<&'static str>,
    unknown: Unknown,
}

/// What becomes of fields that nobody takes.
#[derive(Clone)]
pub(crate) enum Unknown {
    /// The file has a mistake, for a person to correct.
    Refused,
    /// A program of another version wrote them.
    Counted(Rc<Cell<usize>>),
}

/// A field that is a word or an object.
pub(crate) enum TextOrFields {
    Text(String),
    Fields(Fields),
}

impl Fields {
    /// The fields of the whole, which messages call `name`.
    pub(crate) fn of_whole(name: &str, value: Value, unknown: Unknown) -> Result<Self, Invalid> {
        let mut whole = Self::of(name.to_owned(), value, unknown)?;
        whole.at.clear();
        Ok(whole)
    }

    fn of(at: String, value: Value, unknown: Unknown) -> Result<Self, Invalid> {
        match value {
            Value::Object(left) => Ok(Self {
                at,
                left,
                known: Vec::new(),
                unknown,
            }),
            other => {
                let problem = format!("{} is no set of fields", shown(&other));
                Err(Invalid::of(at, problem))
            }
        }
    }

    /// Where a field of this object is.
    pub(crate) fn place(&self, name: &str) -> String {
        if self.at.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.at)
        }
    }

    /// A field that may be absent or null, and where it is.
    fn take(&mut self, name: &'static str) -> Option<(String, Value)> {
        self.known.push(name);
        let value = self.left.shift_remove(name)?;
        (!value.is_null()).then(|| (self.place(name), value))
    }

    pub(crate) fn missing(&self, name: &str, way_out: &str) -> Invalid {
        Invalid::of(self.place(name), format!("is missing: {way_out}"))
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>, Invalid> {
        match self.take(name) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some((at, other)) => {
                let problem = format!("{} is no text: put it in quotes", shown(&other));
                Err(Invalid::of(at, problem))
            }
        }
    }

    /// A list of texts; empty where there is none.
    pub(crate) fn texts(&mut self, name: &'static str) -> Result<Vec<String>, Invalid> {
        let (at, value) = match self.take(name) {
            None => return Ok(Vec::new()),
            Some((at, Value::Array(values))) => (at, values),
            Some((at, other)) => {
                return Err(Invalid::of(at, format!("{} is no list", shown(&other))));
            }
        };
        let entries = value.into_iter().enumerate();
        entries
            .map(|(index, value)| match value {
                Value::String(text) => Ok(text),
                other => {
                    let problem = format!("{} is no text: put it in quotes", shown(&other));
                    Err(Invalid::of(format!("{at}[{index}]"), problem))
                }
            })
            .collect()
    }

    /// A text that `parse` turns into a value or a sentence that starts with a verb.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Invalid> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match parse(&text) {
            Ok(value) => Ok(Some(value)),
            Err(problem) => {
                let problem = format!("{} {problem}", quoted(&text));
                Err(Invalid::of(self.place(name), problem))
            }
        }
    }

    pub(crate) fn whole(&mut self, name: &'static str) -> Result<Option<u32>, Invalid> {
        let Some((at, value)) = self.take(name) else {
            return Ok(None);
        };
        let whole = value.as_u64().and_then(|whole| u32::try_from(whole).ok());
        let problem = || format!("{} is no whole number below 2^32", shown(&value));
        whole
            .map(Some)
            .ok_or_else(|| Invalid::of(at.clone(), problem()))
    }

    pub(crate) fn long(&mut self, name: &'static str) -> Result<Option<u64>, Invalid> {
        let Some((at, value)) = self.take(name) else {
            return Ok(None);
        };
        let problem = || format!("{} is no whole number below 2^64", shown(&value));
        value
            .as_u64()
            .map(Some)
            .ok_or_else(|| Invalid::of(at.clone(), problem()))
    }

    /// A list of whole numbers; empty if it is absent.
    pub(crate) fn longs(&mut self, name: &'static str) -> Result<Vec<u64>, Invalid> {
        let (at, values) = match self.take(name) {
            None => return Ok(Vec::new()),
            Some((at, Value::Array(values))) => (at, values),
            Some((at, other)) => {
                return Err(Invalid::of(at, format!("{} is no list", shown(&other))));
            }
        };
        let long = |(index, value): (usize, &Value)| {
            let problem = || format!("{} is no whole number below 2^64", shown(value));
            let number = value.as_u64();
            number.ok_or_else(|| Invalid::of(format!("{at}[{index}]"), problem()))
        };
        values.iter().enumerate().map(long).collect()
    }

    pub(crate) fn number(&mut self, name: &'static str) -> Result<Option<f64>, Invalid> {
        let Some((at, value)) = self.take(name) else {
            return Ok(None);
        };
        let problem = || format!("{} is no number", shown(&value));
        value
            .as_f64()
            .map(Some)
            .ok_or_else(|| Invalid::of(at.clone(), problem()))
    }

    pub(crate) fn object(&mut self, name: &'static str) -> Result<Option<Self>, Invalid> {
        self.take(name)
            .map(|(at, value)| Self::of(at, value, self.unknown.clone()))
            .transpose()
    }

    /// A field of two forms; `forms` says what to write in place of anything else.
    pub(crate) fn text_or_object(
        &mut self,
        name: &'static str,
        forms: &str,
    ) -> Result<Option<TextOrFields>, Invalid> {
        match self.take(name) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(TextOrFields::Text(text))),
            Some((at, value @ Value::Object(_))) => {
                let fields = Self::of(at, value, self.unknown.clone())?;
                Ok(Some(TextOrFields::Fields(fields)))
            }
            Some((at, other)) => {
                let problem = format!("{} is neither text nor fields: {forms}", shown(&other));
                Err(Invalid::of(at, problem))
            }
        }
    }

    pub(crate) fn list(&mut self, name: &'static str) -> Result<Vec<Self>, Invalid> {
        let (at, value) = match self.take(name) {
            None => return Ok(Vec::new()),
            Some((at, Value::Array(values))) => (at, values),
            Some((at, other)) => {
                return Err(Invalid::of(at, format!("{} is no list", shown(&other))));
            }
        };
        let entries = value.into_iter().enumerate();
        entries
            .map(|(index, value)| Self::of(format!("{at}[{index}]"), value, self.unknown.clone()))
            .collect()
    }

    /// Refuses or counts what nobody took.
    pub(crate) fn end(self) -> Result<(), Invalid> {
        if let Unknown::Counted(count) = &self.unknown {
            count.set(count.get() + self.left.len());
            return Ok(());
        }
        match self.left.keys().next() {
            None => Ok(()),
            Some(name) => {
                let known = self.known.join(", ");
                let problem = format!("is no field: known are {known}");
                Err(Invalid::of(self.place(&quoted(name)), problem))
            }
        }
    }
}

/// A value of the wrong kind, as a message shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a set of fields".to_owned(),
        Value::Null => "nothing".to_owned(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}
