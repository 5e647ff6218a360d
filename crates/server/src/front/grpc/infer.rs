//! `ModelInfer`. A reply carries raw bytes if the request did, or if it asked for them; typed
//! lists otherwise.

use std::time::Instant;

use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_infer_request::InferInputTensor;
use albacore_proto::inference::model_infer_response::InferOutputTensor;
use albacore_proto::inference::{InferTensorContents, ModelInferRequest, ModelInferResponse};
use hyper::HeaderMap;
use prost::bytes::Bytes;
use tonic::Code;

use super::super::ask::{self, Declared, VERSION, Wanted, Wants};
use super::super::datatype::Datatype;
use super::super::limits::{DIMENSIONS_MAX, TENSORS_MAX};
use super::super::refused::Refused;
use super::super::terms::{PRIORITY, TIMEOUT, Terms};
use super::super::{Front, metrics, raw};
use super::Calls;
use albacore_engine::{ElementType, KindSet, ModelHandle, ModelInfo, OutputInfo, Reply, Timing};

impl Calls {
    /// Answers one infer call and counts it.
    pub(super) async fn infer(
        &self,
        headers: &HeaderMap,
        request: ModelInferRequest,
    ) -> Result<(ModelInferResponse, Timing), Refused> {
        let start = Instant::now();
        let (name, version) = (&request.model_name, &request.model_version);
        let found = ask::find(&self.front.engine, name, version);
        let model = found.as_ref().ok().map(ModelHandle::edition);
        let mut kinds = KindSet::EMPTY;
        let answered = match found {
            Ok(model) => match terms(start, headers, &request) {
                Ok(terms) => results(terms.applied_to(model), request, &mut kinds).await,
                Err(refused) => Err(refused),
            },
            Err(refused) => Err(refused),
        };
        let code = answered
            .as_ref()
            .map_or_else(|refused| refused.cause.code(), |_| Code::Ok);
        self.front.metrics.count(metrics::Call {
            model: model.as_ref().map_or("", |model| &model.info().name),
            kinds,
            protocol: "grpc",
            code: format!("{code:?}"),
            took: start.elapsed(),
        });
        answered
    }
}

/// What the headers and the parameters say about the request's time.
fn terms(
    start: Instant,
    headers: &HeaderMap,
    request: &ModelInferRequest,
) -> Result<Terms, Refused> {
    let mut terms = Terms::of(start, headers)?;
    let number = |name: &str| {
        let parameter = request.parameters.get(name)?;
        Some(match parameter.parameter_choice.as_ref() {
            Some(&ParameterChoice::Int64Param(number)) => u64::try_from(number).ok(),
            Some(&ParameterChoice::Uint64Param(number)) => Some(number),
            _ => None,
        })
    };
    if let Some(timeout) = number(TIMEOUT) {
        terms.set_timeout(timeout)?;
    }
    if let Some(priority) = number(PRIORITY) {
        terms.set_priority(priority)?;
    }
    Ok(terms)
}

async fn results(
    handle: ModelHandle,
    request: ModelInferRequest,
    kinds: &mut KindSet,
) -> Result<(ModelInferResponse, Timing), Refused> {
    let edition = handle.edition();
    let model = edition.info();
    let (wanted, asked) = wanted(model, &request)?;
    *kinds = asked;
    let input = only_input(model, &request)?;
    let declared = Declared {
        name: &input.name,
        datatype: &input.datatype,
        shape: &input.shape,
    };
    let (datatype, rows) = ask::check_input(model, &declared)?;
    let data = Data::of(&request, input)?;
    data.check_length(rows * model.features, datatype)?;
    let reply = Front::submit(handle, (rows, datatype), asked, |memory| match data {
        Data::Raw(bytes) => raw::fill_from_bytes(datatype, bytes, memory),
        Data::Typed(contents) => raw::fill_from_contents(datatype, contents, memory),
    })?;
    let id = request.id;
    drop((request.inputs, request.raw_input_contents)); // the rows are in shared memory now
    let reply = reply.await?;
    let response = response(model, id, rows, &wanted, &reply);
    Ok((response, reply.timing()))
}

/// The outputs of the reply. Either all are raw or none is: the protocol knows no mixture.
fn wanted(
    model: &ModelInfo,
    request: &ModelInferRequest,
) -> Result<(Vec<Wanted>, KindSet), Refused> {
    if request.outputs.len() > TENSORS_MAX {
        let outputs = request.outputs.len();
        return Err(Refused::invalid(format!(
            "{outputs} outputs are more than {TENSORS_MAX}"
        )));
    }
    let asks =
        |parameters: &std::collections::HashMap<_, albacore_proto::inference::InferParameter>,
         name: &str| {
            parameters
                .get(name)
                .and_then(|value| value.parameter_choice.as_ref())
                == Some(&ParameterChoice::BoolParam(true))
        };
    let is_raw = !request.raw_input_contents.is_empty()
        || asks(&request.parameters, "binary_data_output")
        || request
            .outputs
            .iter()
            .any(|output| asks(&output.parameters, "binary_data"));
    let mut wants = Wants::of(model);
    for output in &request.outputs {
        for extension in ["classification", "shared_memory_region"] {
            if output.parameters.contains_key(extension) {
                return Err(Refused::invalid(format!(
                    "output {:?}: the extension {extension} is not supported",
                    ask::brief(&output.name)
                )));
            }
        }
        wants.add(&output.name, is_raw)?;
    }
    Ok(wants.or_value(is_raw))
}

fn only_input<'a>(
    model: &ModelInfo,
    request: &'a ModelInferRequest,
) -> Result<&'a InferInputTensor, Refused> {
    let [input] = &request.inputs[..] else {
        return Err(Refused::invalid(format!(
            "the request has {} inputs; model {:?} takes one, \"input\"",
            request.inputs.len(),
            model.name
        )));
    };
    if input.shape.len() > DIMENSIONS_MAX {
        let dimensions = input.shape.len();
        return Err(Refused::invalid(format!(
            "input \"input\" has {dimensions} dimensions; it takes two, [rows, {}]",
            model.features
        )));
    }
    if input.parameters.contains_key("shared_memory_region") {
        return Err(Refused::invalid(
            "input \"input\": shared memory regions are not supported; send the data",
        ));
    }
    Ok(input)
}

/// Where the values are.
#[derive(Clone, Copy)]
enum Data<'a> {
    Raw(&'a Bytes),
    Typed(&'a InferTensorContents),
}

impl<'a> Data<'a> {
    fn of(request: &'a ModelInferRequest, input: &'a InferInputTensor) -> Result<Self, Refused> {
        match (&request.raw_input_contents[..], &input.contents) {
            ([], Some(contents)) => Ok(Self::Typed(contents)),
            ([], None) => Err(Refused::invalid("input \"input\" has no data")),
            ([raw], None) => Ok(Self::Raw(raw)),
            ([_], Some(_)) => Err(Refused::invalid(
                "input \"input\" has both contents and raw_input_contents; send one of them",
            )),
            (several, _) => Err(Refused::invalid(format!(
                "raw_input_contents has {} entries for one input",
                several.len()
            ))),
        }
    }

    /// Refuses a raw tensor whose size is wrong before memory is taken for its shape.
    fn check_length(self, values: usize, datatype: Datatype) -> Result<(), Refused> {
        let (have, need) = match self {
            Self::Raw(bytes) => (bytes.len(), values.saturating_mul(datatype.bytes())),
            Self::Typed(_) => return Ok(()),
        };
        if have == need {
            return Ok(());
        }
        Err(Refused::invalid(format!(
            "input \"input\" has {have} bytes of raw data where its shape needs {need}"
        )))
    }
}

fn response(
    model: &ModelInfo,
    id: String,
    rows: usize,
    wanted: &[Wanted],
    reply: &Reply,
) -> ModelInferResponse {
    let mut response = ModelInferResponse {
        model_name: model.name.clone(),
        model_version: VERSION.to_owned(),
        id,
        ..Default::default()
    };
    for wanted in wanted {
        let (Some(output), Some(values)) = (model.output(wanted.kind), reply.output(wanted.kind))
        else {
            continue;
        };
        let contents = if wanted.binary {
            response
                .raw_output_contents
                .push(Bytes::copy_from_slice(values));
            None
        } else {
            Some(typed(output.element, values))
        };
        response.outputs.push(described(output, rows, contents));
    }
    response
}

fn described(
    output: &OutputInfo,
    rows: usize,
    contents: Option<InferTensorContents>,
) -> InferOutputTensor {
    let sizes = std::iter::once(&rows).chain(&output.row_shape);
    InferOutputTensor {
        name: ask::output_name(output.kind).to_owned(),
        datatype: Datatype::of(output.element).name().to_owned(),
        shape: sizes
            .map(|&size| i64::try_from(size).unwrap_or(i64::MAX))
            .collect(),
        contents,
        ..Default::default()
    }
}

fn typed(element: ElementType, values: &[u8]) -> InferTensorContents {
    let mut contents = InferTensorContents::default();
    match element {
        ElementType::F32 => contents.fp32_contents = list(values, f32::from_le_bytes),
        ElementType::F64 => contents.fp64_contents = list(values, f64::from_le_bytes),
        ElementType::I32 => contents.int_contents = list(values, i32::from_le_bytes),
    }
    contents
}

fn list<T, const N: usize>(values: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    values
        .as_chunks::<N>()
        .0
        .iter()
        .map(|&bytes| read(bytes))
        .collect()
}
