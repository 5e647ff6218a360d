//! KServe's V1 protocol: rows in `instances`, results in `predictions` or, for SHAP values,
//! `explanations`. A row is a list of values, or an object of values by the names of columns.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt;

use albacore_engine::{ElementType, Kind, ModelInfo, OutputInfo, Reply};
use albacore_proto::array::{Reader, SplitBody};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::super::datatype::Datatype;
use super::super::json_values;
use super::super::request_error::RequestError;
use super::super::row_writer::RowWriter;
use super::super::validate::{RequestedOutput, excerpt};
use super::reply;
use super::request::{HttpInferRequest, HttpInput, invalid_json};

/// The rows in messages.
const INPUT: &str = "\"instances\"";

/// The shortest text of a value in an object, `"":0,`.
const NAMED_VALUE_BYTES_MIN: usize = 5;

#[derive(Deserialize)]
struct InstancesBody<'a> {
    // KServe's own servers take both names.
    #[serde(borrow, alias = "inputs")]
    instances: Option<&'a RawValue>,
}

/// Parses a body; the reply has the output of `kind`.
pub(super) fn parse<'a>(
    model: &ModelInfo,
    body: &'a [u8],
    kind: Kind,
) -> Result<HttpInferRequest<'a>, RequestError> {
    let text = find_instances(body)?;
    let mut reader = Reader::new(text);
    if !reader.take(b'[') {
        return Err(invalid("is not a list of rows"));
    }
    let (rows, data, value_bytes_min) = match reader.peek() {
        // The first bracket is that of the list.
        Some(b'[') => (
            text.bytes().filter(|&byte| byte == b'[').count() - 1,
            HttpInput::Lists(text),
            2,
        ),
        Some(b'{') => {
            let rows = serde_json::from_str::<Vec<IgnoredAny>>(text);
            let rows = rows.map_err(|error| invalid_json(body, &error))?;
            (rows.len(), HttpInput::Objects(text), NAMED_VALUE_BYTES_MIN)
        }
        Some(b']') => return Err(invalid("is empty: send at least one row")),
        _ => {
            return Err(invalid(
                "has values where rows should be: send [[1, 2], [3, 4]], or \
                 [{\"age\": 1, \"amount\": 2}]",
            ));
        }
    };
    // Before memory is allocated for them.
    if text.len() / value_bytes_min < rows.saturating_mul(model.features) {
        return Err(invalid(&format!(
            "has less data than {rows} rows of {} values",
            model.features
        )));
    }
    HttpInferRequest::of_rows(model, rows, kind, data)
}

/// The text of the list.
fn find_instances(body: &[u8]) -> Result<&str, RequestError> {
    // serde takes a list for an object whose names are left out.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(RequestError::invalid(
            "the body is a list: send an object, {\"instances\": [[1, 2]]}",
        ));
    }
    if let Some(split) = SplitBody::of_key(body, b"\"instances\"")
        && let Ok(document) = serde_json::from_slice::<InstancesBody<'_>>(&split.rest)
        && document
            .instances
            .is_some_and(|value| split.is_placeholder(value.get()))
    {
        return Ok(split.array);
    }
    let document = serde_json::from_slice::<InstancesBody<'_>>(body);
    let document = document.map_err(|error| invalid_json(body, &error))?;
    let instances = document.instances.map(RawValue::get);
    instances.ok_or_else(|| RequestError::invalid("the body has no \"instances\""))
}

fn invalid(problem: &str) -> RequestError {
    RequestError::invalid(format!("{INPUT} {problem}"))
}

/// Writes rows that are lists.
pub(super) fn write_lists(
    datatype: Datatype,
    features: usize,
    text: &str,
    memory: &mut [u8],
) -> Result<(), RequestError> {
    json_values::write_json(RowWriter::of_input(INPUT, datatype, memory), features, text)
}

/// Writes rows that are objects, whatever the order of their columns.
pub(super) fn write_objects(
    model: &ModelInfo,
    datatype: Datatype,
    text: &str,
    memory: &mut [u8],
) -> Result<(), RequestError> {
    if model.columns.names.is_empty() {
        let name = &model.name;
        return Err(invalid(&format!(
            "has objects, but the columns of model {name:?} have no names: send lists"
        )));
    }
    let mut refused = None;
    let rows = ObjectRows {
        model,
        writer: RowWriter::of_input(INPUT, datatype, memory),
        refused: &mut refused,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = rows.deserialize(&mut json);
    match (refused, read) {
        (Some(error), _) => Err(error),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => Err(invalid(&format!("is not a list of objects: {error}"))),
    }
}

/// Reads rows one after the other, so that no more than one is stored.
struct ObjectRows<'a> {
    model: &'a ModelInfo,
    writer: RowWriter<'a>,
    /// Why a row was refused.
    refused: &'a mut Option<RequestError>,
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
        let mut row = ObjectRow::new(&self.model.columns.names);
        let mut writer = self.writer;
        let mut index = 0;
        // bound: rows of the body
        while let Some(object) = list.next_element::<Object<'de>>()? {
            if self.refused.is_none() {
                let written = row.write(&object, &mut writer);
                *self.refused = written.err().map(|problem| {
                    let model = &self.model.name;
                    RequestError::invalid(format!("instance {index}, model {model:?}: {problem}"))
                });
            }
            index += 1;
        }
        Ok(())
    }
}

/// The members of an object, in its order.
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

/// A name, which is a part of the body unless it has escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Where the columns of a model are, and the values of one row.
struct ObjectRow<'a, 'de> {
    names: &'a [String],
    places: OnceCell<HashMap<&'a str, usize>>,
    values: Vec<Option<&'de str>>,
}

impl<'a, 'de> ObjectRow<'a, 'de> {
    fn new(names: &'a [String]) -> Self {
        Self {
            names,
            places: OnceCell::new(),
            values: vec![None; names.len()],
        }
    }

    fn write(&mut self, object: &Object<'de>, writer: &mut RowWriter<'_>) -> Result<(), String> {
        self.values.fill(None);
        for (at, (name, value)) in object.0.iter().enumerate() {
            let place = self.place(at, name);
            let place = place.ok_or_else(|| format!("column {:?} is unknown", excerpt(name)))?;
            if self.values[place].replace(value.get()).is_some() {
                return Err(format!("column {:?} comes twice", excerpt(name)));
            }
        }
        for (name, value) in self.names.iter().zip(&self.values) {
            let named = |problem: &str| format!("column {:?}{problem}", excerpt(name));
            let value = value.ok_or_else(|| named(" is missing"))?;
            let written = json_values::write_value(value, writer);
            written.map_err(|error| named(&format!(": {}", error.message)))?;
        }
        Ok(())
    }

    /// The column with this name, which most clients send in the model's order.
    fn place(&self, at: usize, name: &str) -> Option<usize> {
        if self.names.get(at).is_some_and(|expected| expected == name) {
            return Some(at);
        }
        let places = self.places.get_or_init(|| {
            let names = self.names.iter().enumerate();
            names.map(|(place, name)| (name.as_str(), place)).collect()
        });
        places.get(name).copied()
    }
}

/// The body of a reply: under `key`, an entry for each row.
pub(super) fn print(
    key: &str,
    model: &ModelInfo,
    outputs: &[RequestedOutput],
    reply: &Reply,
) -> Vec<u8> {
    let found = outputs.first().and_then(|requested| {
        let kind = requested.kind;
        Some((model.output(kind)?, reply.output(kind)?))
    });
    let mut body = Vec::new();
    body.extend_from_slice(format!("{{\"{key}\":[").as_bytes());
    if let Some((output, values)) = found {
        body.reserve(4 * values.len());
        print_rows(&mut body, output, values);
    }
    body.extend_from_slice(b"]}");
    body
}

fn print_rows(body: &mut Vec<u8>, output: &OutputInfo, values: &[u8]) {
    for (place, row) in values.chunks_exact(output.row_bytes().max(1)).enumerate() {
        if place > 0 {
            body.push(b',');
        }
        print_nested(body, output.element, &output.row_shape, row);
    }
}

/// Prints values of this shape; it has at most three dimensions.
fn print_nested(body: &mut Vec<u8>, element: ElementType, shape: &[usize], values: &[u8]) {
    let Some((&length, inner)) = shape.split_first() else {
        return reply::print_values(body, element, values);
    };
    body.push(b'[');
    if inner.is_empty() {
        reply::print_values(body, element, values);
        return body.push(b']');
    }
    let part_bytes = (values.len() / length.max(1)).max(1);
    for (place, part) in values.chunks_exact(part_bytes).enumerate() {
        if place > 0 {
            body.push(b',');
        }
        print_nested(body, element, inner, part);
    }
    body.push(b']');
}

#[cfg(test)]
mod tests;
