//! Tables in JSON: `instances` of KServe's V1 protocol, and the four keys of MLflow, two of which
//! are also keys of Vertex AI and TensorFlow Serving.

use std::borrow::Cow;
use std::fmt;

use albacore_engine::ModelInfo;
use albacore_proto::array::SplitBody;
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use crate::excerpt::excerpt;
use crate::limits::COLUMNS_MAX;
use crate::table::{Params, PredictFunction, RowsKey, Table, Values, count_rows, may_have_strings};
use crate::{ColumnOrder, InvalidRows};

#[derive(Deserialize)]
struct InstancesBody<'a> {
    // KServe's own servers accept both names.
    #[serde(borrow, alias = "inputs")]
    instances: Option<&'a RawValue>,
}

/// A body of MLflow or Vertex AI; unknown keys are ignored, as MLflow does.
#[derive(Deserialize)]
struct ScoringBody<'a> {
    #[serde(borrow)]
    dataframe_split: Option<&'a RawValue>,
    #[serde(borrow)]
    dataframe_records: Option<&'a RawValue>,
    #[serde(borrow)]
    instances: Option<&'a RawValue>,
    #[serde(borrow)]
    inputs: Option<&'a RawValue>,
    /// Key of MLflow.
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    /// Key of Vertex AI.
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Split<'a> {
    #[serde(borrow)]
    columns: Option<&'a RawValue>,
    #[serde(rename = "index")]
    _index: Option<IgnoredAny>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// A column name: a string, or the number that pandas gives to an unnamed column.
#[derive(Deserialize)]
#[serde(untagged)]
enum ColumnName<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Number(u32),
}

impl<'a> Table<'a> {
    /// Reads a body of KServe's V1 protocol.
    ///
    /// # Errors
    /// The body is not JSON, or `instances` is not a list of rows.
    pub fn from_instances(model: &ModelInfo, body: &'a [u8]) -> Result<Self, InvalidRows> {
        let text = find_instances(model, body)?;
        let (rows, values) = count_rows(model, RowsKey::Instances, text)?;
        Self::new(model, RowsKey::Instances, rows, values, Params::default())
    }

    /// Reads a body of MLflow, SageMaker or Vertex AI.
    ///
    /// # Errors
    /// The body is not JSON, does not have exactly one of the four keys, or its rows have the wrong
    /// form or columns.
    pub fn from_json(model: &ModelInfo, body: &'a [u8]) -> Result<Self, InvalidRows> {
        // serde accepts a list in place of an object: its members are the fields, in order.
        if body.trim_ascii_start().first() == Some(&b'[') {
            return Err(InvalidRows::new(
                "the body is a list: send an object, {\"inputs\": [[1, 2]]}",
            ));
        }
        let document = serde_json::from_slice::<ScoringBody<'a>>(body);
        let document = document.map_err(|error| invalid_json(body, &error))?;
        let found = [
            (RowsKey::Split, document.dataframe_split),
            (RowsKey::Records, document.dataframe_records),
            (RowsKey::Instances, document.instances),
            (RowsKey::Inputs, document.inputs),
        ];
        let found: Vec<_> = found
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?.get())))
            .collect();
        let [(key, text)] = found[..] else {
            let have: Vec<_> = found.iter().map(|(key, _)| key.quoted()).collect();
            let have = if have.is_empty() {
                "none".to_owned()
            } else {
                have.join(" and ")
            };
            return Err(InvalidRows::new(format!(
                "the body must have exactly one of \"dataframe_split\", \"dataframe_records\", \
                 \"instances\" and \"inputs\"; it has {have}"
            )));
        };
        let params = read_params(document.params.or(document.parameters))?;
        let (rows, values) = match key {
            RowsKey::Split => read_split(model, text)?,
            RowsKey::Inputs if text.starts_with('{') => read_columns(model, text)?,
            _ => count_rows(model, key, text)?,
        };
        if key == RowsKey::Records && !matches!(values, Values::Objects(_)) {
            return Err(key.invalid("is not a list of objects: send [{\"age\": 1, \"amount\": 2}]"));
        }
        Self::new(model, key, rows, values, params)
    }
}

/// Returns the text of the list `instances`.
fn find_instances<'a>(model: &ModelInfo, body: &'a [u8]) -> Result<&'a str, InvalidRows> {
    // serde accepts a list in place of an object: its members are the fields, in order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(InvalidRows::new(
            "the body is a list: send an object, {\"instances\": [[1, 2]]}",
        ));
    }
    // Fast path, not for texts of categories: brackets in them would end the list too early.
    if let Some(split) = SplitBody::of_key(body, b"\"instances\"")
        && !may_have_strings(model, split.array)
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
    instances.ok_or_else(|| InvalidRows::new("the body has no \"instances\""))
}

fn read_split<'a>(model: &ModelInfo, text: &'a str) -> Result<(usize, Values<'a>), InvalidRows> {
    let key = RowsKey::Split;
    if !text.starts_with('{') {
        return Err(key.invalid("is not an object: send {\"columns\": [\"age\"], \"data\": [[1]]}"));
    }
    let split: Split<'a> = serde_json::from_str(text).map_err(|error| {
        key.invalid(&format!(
            "is not an object of columns, index and data: {error}"
        ))
    })?;
    let order = match split.columns {
        None => None,
        Some(columns) => {
            let names = names(columns.get(), model.features).map_err(|error| {
                key.invalid(&format!(
                    "has columns that are not a list of names: {error}"
                ))
            })?;
            ColumnOrder::find(model, &names)
                .map_err(|error| key.invalid(&format!("for {error}")))?
        }
    };
    match count_rows(model, key, split.data.get())? {
        (rows, Values::Lists(text, _)) => Ok((rows, Values::Lists(text, order))),
        _ => Err(key.invalid("has objects in data where lists should be")),
    }
}

/// Parses a list of names. Returns at most `columns + 1` names: if there are more names than
/// columns, one of the first `columns + 1` is unknown or a duplicate.
pub(crate) fn names(text: &str, columns: usize) -> serde_json::Result<Vec<Cow<'_, str>>> {
    struct Names(usize);
    impl<'de> DeserializeSeed<'de> for Names {
        type Value = Vec<Cow<'de, str>>;

        fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
            from.deserialize_seq(self)
        }
    }
    impl<'de> Visitor<'de> for Names {
        type Value = Vec<Cow<'de, str>>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of strings")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut names = Vec::new();
            // bound: names in the body
            while let Some(name) = list.next_element::<ColumnName<'de>>()? {
                if names.len() <= self.0 {
                    names.push(match name {
                        ColumnName::Text(text) => text,
                        ColumnName::Number(number) => number.to_string().into(),
                    });
                }
            }
            Ok(names)
        }
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let names = Names(columns).deserialize(&mut json)?;
    json.end()?;
    Ok(names)
}

/// The members of a JSON object, in the order of the text.
struct ObjectMembers<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for ObjectMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AllMembers;
        impl<'de> Visitor<'de> for AllMembers {
            type Value = ObjectMembers<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<ObjectMembers<'de>, A::Error> {
                let mut members = Vec::new();
                // bound: members in the body
                while let Some(name) = map.next_key::<Name<'de>>()? {
                    if members.len() == COLUMNS_MAX {
                        return Err(A::Error::custom(format!("more than {COLUMNS_MAX} members")));
                    }
                    members.push((name.0, map.next_value()?));
                }
                Ok(ObjectMembers(members))
            }
        }
        deserializer.deserialize_map(AllMembers)
    }
}

/// A key, borrowed from the body unless it has escapes.
#[derive(Deserialize)]
pub(crate) struct Name<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// Reads an object that maps column names to lists of values.
fn read_columns<'a>(model: &ModelInfo, text: &'a str) -> Result<(usize, Values<'a>), InvalidRows> {
    let key = RowsKey::Inputs;
    let members = serde_json::from_str::<ObjectMembers<'a>>(text);
    let members = members.map_err(|error| key.invalid(&format!("is not an object: {error}")))?;
    let names: Vec<&str> = members.0.iter().map(|(name, _)| name.as_ref()).collect();
    let order = ColumnOrder::find(model, &names);
    let order = order.map_err(|error| key.invalid(&format!("for {error}")))?;
    let texts = members.0.iter().map(|(_, value)| Some(value.get()));
    let texts: Vec<Option<&str>> = match order {
        None => texts.collect(),
        Some(order) => order
            .sources()
            .iter()
            .map(|&source| Some(members.0[source?].1.get()))
            .collect(),
    };
    let mut rows = None;
    for (name, value) in &members.0 {
        let name = excerpt(name);
        let values = serde_json::from_str::<Vec<IgnoredAny>>(value.get());
        let values = values
            .map_err(|_| key.invalid(&format!("has column {name:?}, which is not a list")))?
            .len();
        let first = *rows.get_or_insert(values);
        if first != values {
            return Err(key.invalid(&format!(
                "has {values} values in column {name:?}, where the first column has {first}"
            )));
        }
    }
    Ok((rows.unwrap_or_default(), Values::Columns(texts)))
}

/// Parses `params` or `parameters`.
fn read_params(value: Option<&RawValue>) -> Result<Params, InvalidRows> {
    const REMEDY: &str = "the only parameter is \"predict_fn\", \"predict\" or \"predict_proba\"";
    let Some(value) = value.map(RawValue::get).filter(|text| *text != "null") else {
        return Ok(Params::default());
    };
    let members = serde_json::from_str::<ObjectMembers<'_>>(value);
    let members = members
        .map_err(|_| InvalidRows::new(format!("the parameters are not an object: {REMEDY}")))?;
    let mut params = Params::default();
    for (name, value) in members.0 {
        let value = value.get();
        params.predict_function = match (name.as_ref(), value) {
            ("predict_fn", "\"predict\"") => Some(PredictFunction::Predict),
            ("predict_fn", "\"predict_proba\"") => Some(PredictFunction::PredictProba),
            _ => {
                let (name, value) = (excerpt(&name), excerpt(value));
                let problem = format!("parameter {name:?} with value {value} is not known");
                return Err(InvalidRows::new(format!("{problem}: {REMEDY}")));
            }
        };
    }
    Ok(params)
}

/// Returns the error for a body that cannot be parsed as JSON.
#[must_use]
pub fn invalid_json(json: &[u8], error: &serde_json::Error) -> InvalidRows {
    let line = json
        .split(|&byte| byte == b'\n')
        .nth(error.line().saturating_sub(1));
    let from = error.column().saturating_sub(2);
    let near = line
        .and_then(|line| line.get(from..(from + 3).min(line.len())))
        .unwrap_or_default();
    let hint = if error.is_syntax() && near.iter().any(|byte| matches!(byte, b'N' | b'I')) {
        "; JSON has no NaN and no Infinity: send null for a missing value, or binary data"
    } else if json.trim_ascii_start().first() != Some(&b'{') {
        "; it should be a JSON object; bytes of rows need the header \
         Inference-Header-Content-Length"
    } else {
        ""
    };
    InvalidRows::new(format!("the body is not an infer request: {error}{hint}"))
}
