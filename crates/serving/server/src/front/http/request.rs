//! The body of an HTTP infer call: JSON, then the bytes of binary tensors.
//!
//! The array of `data` is cut out by its brackets, what is left is parsed by serde, and `numbers`
//! reads the array straight into the reservation: only so is each number looked at once. Where the
//! cut was wrong, the whole is parsed, and `data` left as a piece of text. Unknown keys are
//! skipped.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::super::ask::{self, Declared, Wanted, Wants};
use super::super::datatype::Datatype;
use super::super::limits::{DIMENSIONS_MAX, TENSORS_MAX};
use super::super::refused::Refused;
use super::super::terms::{Terms, whole_number};
use super::super::{feature_names, numbers, raw};
use albacore_engine::{KindSet, ModelInfo};
use albacore_proto::array::Apart;

/// An infer call that passed all checks but those of its numbers.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// Rows of the input.
    pub(super) rows: usize,
    /// Data type of the input.
    pub(super) datatype: Datatype,
    /// The outputs of the reply, in order.
    pub(super) wanted: Vec<Wanted>,
    /// The same as a set.
    pub(super) kinds: KindSet,
    pub(super) id: Option<String>,
    data: Data<'a>,
    features: usize,
    timeout: Option<String>,
    priority: Option<String>,
}

#[derive(Debug)]
enum Data<'a> {
    /// An array, and all of the JSON that it is part of.
    Text(&'a str, &'a [u8]),
    Bytes(&'a [u8]),
}

impl<'a> Call<'a> {
    /// Reads a body whose first `json_bytes` bytes are JSON (all of it when `None`, none when
    /// zero).
    pub(super) fn parse(
        model: &ModelInfo,
        body: &'a [u8],
        json_bytes: Option<usize>,
    ) -> Result<Self, Refused> {
        if json_bytes == Some(0) {
            return Self::raw(model, body);
        }
        let (json, binary) = body
            .split_at_checked(json_bytes.unwrap_or(body.len()))
            .ok_or_else(|| {
                let (have, said) = (body.len(), json_bytes.unwrap_or_default());
                Refused::invalid(format!(
                    "Inference-Header-Content-Length is {said}, but the body has {have} bytes"
                ))
            })?;
        if let Some(apart) = Apart::of(json)
            && let Ok(document) = serde_json::from_slice::<Document<'_>>(&apart.rest)
            && document.text().is_some_and(|text| apart.stands_for(text))
        {
            return Self::checked(model, document, Some(apart.array), (json, binary));
        }
        let document: Document<'a> =
            serde_json::from_slice(json).map_err(|error| not_json(json, &error))?;
        let text = document.text();
        Self::checked(model, document, text, (json, binary))
    }

    /// A request whose data, if they are part of the JSON, are `text`.
    fn checked(
        model: &ModelInfo,
        document: Document<'_>,
        text: Option<&'a str>,
        (json, binary): (&'a [u8], &'a [u8]),
    ) -> Result<Self, Refused> {
        let [input] = &document.inputs.0[..] else {
            let inputs = document.inputs.0.len();
            return Err(Refused::invalid(format!(
                "the request has {inputs} inputs; model {:?} takes one, \"input\"",
                model.name
            )));
        };
        let declared = Declared {
            datatype: &input.datatype,
            shape: &input.shape.0,
        };
        let (datatype, rows) = ask::check_input(model, &declared)?;
        if let Some(names) = document.feature_names() {
            feature_names::check_json(model, names.get())?;
        }
        let values = rows * model.features;
        let text = text.map(|text| (text, json));
        let data = input.data((values, datatype), text, binary)?;
        let (wanted, kinds) = document.wanted(model)?;
        Ok(Self {
            rows,
            datatype,
            wanted,
            kinds,
            data,
            features: model.features,
            timeout: document.parameter(|all| all.timeout).map(str::to_owned),
            priority: document.parameter(|all| all.priority).map(str::to_owned),
            id: document.id,
        })
    }

    /// A body without JSON: rows of the model's own type, the value as bytes in return.
    fn raw(model: &ModelInfo, body: &'a [u8]) -> Result<Self, Refused> {
        let datatype = ask::input_datatype(model);
        let row_bytes = model.features * datatype.bytes();
        if body.is_empty() || row_bytes == 0 || !body.len().is_multiple_of(row_bytes) {
            return Err(Refused::invalid(format!(
                "a body of {} bytes is not a whole number of rows: a row of model {:?} is {} {} \
                 values, {row_bytes} bytes",
                body.len(),
                model.name,
                model.features,
                datatype.name()
            )));
        }
        let (wanted, kinds) = Wants::of(model).or_value(true);
        let rows = body.len() / row_bytes;
        let data = Data::Bytes(body);
        Ok(Self {
            rows,
            datatype,
            wanted,
            kinds,
            id: None,
            data,
            features: model.features,
            timeout: None,
            priority: None,
        })
    }

    /// Takes what the parameters say about the request's time into `terms`.
    pub(super) fn set(&self, terms: &mut Terms) -> Result<(), Refused> {
        if let Some(text) = &self.timeout {
            terms.set_timeout(whole_number(text))?;
        }
        if let Some(text) = &self.priority {
            terms.set_priority(whole_number(text))?;
        }
        Ok(())
    }

    /// Writes the rows.
    pub(super) fn fill(&self, memory: &mut [u8]) -> Result<(), Refused> {
        match self.data {
            Data::Text(text, json) => {
                let filled = numbers::fill_from_json(self.datatype, self.features, text, memory);
                // What is no JSON is refused as that, whatever else the numbers have.
                filled.map_err(|refused| {
                    let error = serde_json::from_slice::<IgnoredAny>(json).err();
                    error.map_or(refused, |error| not_json(json, &error))
                })
            }
            Data::Bytes(bytes) => raw::fill_from_bytes(self.datatype, bytes, memory),
        }
    }
}

/// The JSON of an infer call.
#[derive(Deserialize)]
struct Document<'a> {
    id: Option<String>,
    #[serde(borrow)]
    parameters: Option<RequestParameters<'a>>,
    #[serde(borrow)]
    inputs: Few<Input<'a>, TENSORS_MAX>,
    outputs: Option<Few<Output, TENSORS_MAX>>,
}

#[derive(Deserialize)]
struct RequestParameters<'a> {
    binary_data_output: Option<bool>,
    // As text, so that a value of another type is refused by the parameter's name.
    #[serde(borrow)]
    timeout: Option<&'a RawValue>,
    #[serde(borrow)]
    priority: Option<&'a RawValue>,
    #[serde(borrow)]
    feature_names: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Input<'a> {
    /// The protocol wants one; which one does not matter.
    #[serde(rename = "name")]
    _name: String,
    shape: Few<i64, DIMENSIONS_MAX>,
    datatype: String,
    #[serde(borrow)]
    parameters: Option<InputParameters<'a>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct InputParameters<'a> {
    binary_data_size: Option<u64>,
    #[serde(borrow)]
    feature_names: Option<&'a RawValue>,
    shared_memory_region: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Output {
    name: String,
    parameters: Option<OutputParameters>,
}

#[derive(Deserialize)]
struct OutputParameters {
    binary_data: Option<bool>,
    classification: Option<IgnoredAny>,
    shared_memory_region: Option<IgnoredAny>,
}

impl Input<'_> {
    /// Where the values are; sizes are checked here, so that no memory is taken for a shape that
    /// lies.
    fn data<'b>(
        &self,
        (values, datatype): (usize, Datatype),
        text: Option<(&'b str, &'b [u8])>,
        binary: &'b [u8],
    ) -> Result<Data<'b>, Refused> {
        let parameters = self.parameters.as_ref();
        if parameters.is_some_and(|parameters| parameters.shared_memory_region.is_some()) {
            return Err(Refused::invalid(
                "input \"input\": shared memory regions are not supported; send the data",
            ));
        }
        match (
            text,
            parameters.and_then(|parameters| parameters.binary_data_size),
        ) {
            (None, Some(said)) => {
                let need = values.saturating_mul(datatype.bytes());
                if said != need as u64 || binary.len() != need {
                    return Err(Refused::invalid(format!(
                        "input \"input\" needs {need} bytes of binary data for its shape; \
                         binary_data_size is {said} and {} bytes follow the JSON",
                        binary.len()
                    )));
                }
                Ok(Data::Bytes(binary))
            }
            (Some(_), Some(_)) => Err(Refused::invalid(
                "input \"input\" has both data and binary_data_size; send one of them",
            )),
            (None, None) => Err(Refused::invalid("input \"input\" has no data")),
            (Some(_), None) if !binary.is_empty() => Err(Refused::invalid(format!(
                "{} bytes follow the JSON, but input \"input\" has no binary_data_size",
                binary.len()
            ))),
            (Some((text, json)), None) => {
                // Each value needs a digit and a separator.
                if text.len() / 2 < values {
                    return Err(Refused::invalid(format!(
                        "input \"input\" has less data than the {values} values of its shape"
                    )));
                }
                Ok(Data::Text(text, json))
            }
        }
    }
}

impl<'a> Document<'a> {
    /// The data of the input if it is one.
    fn text(&self) -> Option<&'a str> {
        match &self.inputs.0[..] {
            [input] => input.data.map(RawValue::get),
            _ => None,
        }
    }

    /// What the request calls its columns: a parameter of the input, or of the request.
    fn feature_names(&self) -> Option<&'a RawValue> {
        let input = self.inputs.0.first()?.parameters.as_ref();
        let own = input.and_then(|parameters| parameters.feature_names);
        own.or_else(|| self.parameters.as_ref()?.feature_names)
    }

    /// The text of a parameter.
    fn parameter(
        &self,
        named: impl Fn(&RequestParameters<'a>) -> Option<&'a RawValue>,
    ) -> Option<&'a str> {
        self.parameters.as_ref().and_then(named).map(RawValue::get)
    }

    fn wanted(&self, model: &ModelInfo) -> Result<(Vec<Wanted>, KindSet), Refused> {
        let by_default = self
            .parameters
            .as_ref()
            .and_then(|p| p.binary_data_output)
            .unwrap_or(false);
        let mut wants = Wants::of(model);
        for output in self.outputs.iter().flat_map(|outputs| &outputs.0) {
            let parameters = output.parameters.as_ref();
            if parameters
                .is_some_and(|p| p.classification.is_some() || p.shared_memory_region.is_some())
            {
                return Err(Refused::invalid(format!(
                    "output {:?}: the classification and shared memory extensions are not \
                     supported",
                    ask::brief(&output.name)
                )));
            }
            let binary = parameters.and_then(|p| p.binary_data).unwrap_or(by_default);
            wants.add(&output.name, binary)?;
        }
        Ok(wants.or_value(by_default))
    }
}

/// A refusal that names the field, or for what is no JSON the place, with a hint where a client
/// printed a NaN or sent bytes.
fn not_json(json: &[u8], error: &serde_json::Error) -> Refused {
    if error.is_data() {
        let mut reader = serde_json::Deserializer::from_slice(json);
        // Read once more, as finding the field costs time that a good request should not spend.
        if let Err(error) = serde_path_to_error::deserialize::<_, Document<'_>>(&mut reader) {
            return not_a_request(&error.path().to_string(), &error.inner().to_string());
        }
    }
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
    Refused::invalid(format!("the body is not an infer request: {error}{hint}"))
}

/// The refusal of a field by its path, `.` for the whole.
fn not_a_request(path: &str, problem: &str) -> Refused {
    const SHOWN_CHARS: usize = 200;
    let (problem, _) = problem.rsplit_once(" at line ").unwrap_or((problem, ""));
    // A text of the wrong type is repeated by the parser, however long it is.
    let problem: String = problem.chars().take(SHOWN_CHARS).collect();
    let place = match path {
        "." => String::new(),
        path => format!("{}: ", path.chars().take(SHOWN_CHARS).collect::<String>()),
    };
    Refused::invalid(format!(
        "the body is not an infer request: {place}{problem}"
    ))
}

/// A list of at most `MAX` members: a longer one is refused before it is kept.
struct Few<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Few<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T, const MAX: usize>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Members<T, MAX> {
            type Value = Few<T, MAX>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "an array of at most {MAX} entries")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let mut kept = Vec::new();
                while let Some(member) = members.next_element()? {
                    if kept.len() == MAX {
                        let mut all = MAX + 1;
                        // bound: members of the body, none of which is kept
                        while members.next_element::<IgnoredAny>()?.is_some() {
                            all += 1;
                        }
                        let problem = format!("at most {MAX} entries are taken, got {all}");
                        return Err(A::Error::custom(problem));
                    }
                    kept.push(member);
                }
                Ok(Few(kept))
            }
        }
        deserializer.deserialize_seq(Members(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests;
