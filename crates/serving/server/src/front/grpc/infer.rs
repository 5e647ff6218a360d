//! `ModelInfer`. A reply carries raw bytes if the request did, or if it asked for them; typed
//! lists otherwise.

use std::sync::Arc;
use std::time::Instant;

use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_infer_request::InferInputTensor;
use albacore_proto::inference::model_infer_response::InferOutputTensor;
use albacore_proto::inference::{InferTensorContents, ModelInferRequest, ModelInferResponse};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{HeaderMap, Response};
use tonic::Code;

use super::super::ask::{self, Declared, VERSION, Wanted, Wants};
use super::super::datatype::Datatype;
use super::super::feature_names::{self, FEATURE_NAMES};
use super::super::limits::{DIMENSIONS_MAX, TENSORS_MAX};
use super::super::outgoing::Outgoing;
use super::super::refused::Refused;
use super::super::statistics::Answered;
use super::super::terms::{PRIORITY, TIMEOUT, Terms};
use super::super::{Front, SERVER_TIMING, body, metrics, raw, server_timing};
use super::weigh::weigh;
use super::{Grpc, decoded, unary};
use albacore_connections::{ConnState, Limit};
use albacore_engine::{
    ElementType, Kind, KindSet, ModelHandle, ModelInfo, OutputInfo, Reply, Timing,
};

/// What is known of a call by the time it ends, for the metrics.
#[derive(Default)]
struct Known {
    model: String,
    kinds: KindSet,
    answered: Option<Answered>,
}

impl Grpc {
    /// Answers one infer call and counts it.
    pub(super) async fn infer(
        &self,
        headers: &HeaderMap,
        body: Incoming,
        conn: &ConnState,
    ) -> Result<Response<Outgoing>, Refused> {
        let start = conn.arrival();
        let mut known = Known::default();
        let answered = self
            .results((headers, start), (body, conn), &mut known)
            .await;
        let (answered, timing) = match answered {
            Ok((response, timing)) => (Ok(unary::reply(&response)), Some(timing)),
            Err(refused) => (Err(refused), None),
        };
        let code = answered
            .as_ref()
            .map_or_else(|refused| refused.cause.code(), |_| Code::Ok);
        self.front.metrics.count(metrics::Call {
            model: &known.model,
            kinds: known.kinds,
            protocol: "grpc",
            code: format!("{code:?}"),
            took: start.elapsed(),
            answered: known.answered,
        });
        let mut reply = answered?;
        // infallible: digits, letters and punctuation
        if let Some(Ok(timing)) = timing.map(|timing| server_timing(timing).parse()) {
            reply.headers_mut().insert(SERVER_TIMING, timing);
        }
        Ok(reply)
    }

    async fn results(
        &self,
        (headers, start): (&HeaderMap, Instant),
        (body, conn): (Incoming, &ConnState),
        known: &mut Known,
    ) -> Result<(ModelInferResponse, Timing), Refused> {
        let bytes = body::read(body, &self.arriving, conn).await?;
        let whole = conn.arrival();
        let bytes = unary::message(headers, bytes)?;
        weigh(&bytes)?;
        let request: ModelInferRequest = decoded(bytes)?;
        let (name, version) = (&request.model_name, &request.model_version);
        let model = ask::find(&self.front.engine, name, version)?;
        known.model.clone_from(name);
        let mut terms = terms(start, headers, &request)?;
        terms.set_whole(whole);
        let handle = terms.applied_to(model);
        results(handle, request, (&terms, conn), known).await
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
    (terms, conn): (&Terms, &ConnState),
    known: &mut Known,
) -> Result<(ModelInferResponse, Timing), Refused> {
    let whole = Instant::now();
    let edition = handle.edition();
    let model = edition.info();
    let asked = Asked::of(model, &request)?;
    known.kinds = asked.kinds;
    let (rows, datatype) = (asked.rows, asked.datatype);
    ask::check_reply(model, rows, &asked.wanted).inspect_err(|_| conn.count(Limit::ReplyBytes))?;
    let reply = Front::submit(handle, (rows, datatype), asked.kinds, |m| asked.fill(m))?;
    let (wanted, input) = (asked.wanted, whole.elapsed());
    let id = request.id;
    drop((request.inputs, request.raw_input_contents)); // the rows are in shared memory now
    let reply = terms.bound(reply).await?;
    let timing = reply.timing();
    known.answered = Some(Answered {
        rows,
        input,
        timing,
        computed: Instant::now(),
    });
    let response = response(model, id, rows, &wanted, reply);
    Ok((response, timing))
}

/// A request that passed all checks but those of its numbers.
pub(super) struct Asked<'a> {
    pub(super) rows: usize,
    pub(super) datatype: Datatype,
    wanted: Vec<Wanted>,
    kinds: KindSet,
    data: Data<'a>,
}

impl<'a> Asked<'a> {
    pub(super) fn of(model: &ModelInfo, request: &'a ModelInferRequest) -> Result<Self, Refused> {
        let (wanted, kinds) = wanted(model, request)?;
        let input = only_input(model, request)?;
        let declared = Declared {
            datatype: &input.datatype,
            shape: &input.shape,
        };
        let (datatype, rows) = ask::check_input(model, &declared)?;
        check_names(model, request, input)?;
        let data = Data::of(request, input)?;
        data.check_length(rows * model.features, datatype)?;
        Ok(Self {
            rows,
            datatype,
            wanted,
            kinds,
            data,
        })
    }

    /// Writes the rows.
    pub(super) fn fill(&self, memory: &mut [u8]) -> Result<(), Refused> {
        match self.data {
            Data::Raw(bytes) => raw::fill_from_bytes(self.datatype, bytes, memory),
            Data::Typed(contents) => raw::fill_from_contents(self.datatype, contents, memory),
        }
    }
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

/// Compares what the request calls its columns, by a parameter of the input or of the request, with
/// the model's.
fn check_names(
    model: &ModelInfo,
    request: &ModelInferRequest,
    input: &InferInputTensor,
) -> Result<(), Refused> {
    let own = input.parameters.get(FEATURE_NAMES);
    let Some(names) = own.or_else(|| request.parameters.get(FEATURE_NAMES)) else {
        return Ok(());
    };
    match &names.parameter_choice {
        Some(ParameterChoice::StringParam(text)) => feature_names::check_text(model, text),
        _ => Err(feature_names::no_names()),
    }
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

/// The bytes of an output where the worker wrote them; the reply's frame has the only copy.
struct Output(Arc<Reply>, Kind);

impl AsRef<[u8]> for Output {
    fn as_ref(&self) -> &[u8] {
        self.0.output(self.1).unwrap_or_default()
    }
}

fn response(
    model: &ModelInfo,
    id: String,
    rows: usize,
    wanted: &[Wanted],
    reply: Reply,
) -> ModelInferResponse {
    let reply = Arc::new(reply);
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
            let bytes = Bytes::from_owner(Output(Arc::clone(&reply), wanted.kind));
            response.raw_output_contents.push(bytes);
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
