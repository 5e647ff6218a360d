//! `ModelInfer`. A reply carries raw bytes if the request did, or if it asks for them; typed lists
//! otherwise.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use albacore_connections::{ConnState, Limit};
use albacore_engine::{ElementType, Kind, KindSet, ModelInfo, OutputInfo, Reply};
use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_infer_request::InferInputTensor;
use albacore_proto::inference::model_infer_response::InferOutputTensor;
use albacore_proto::inference::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse,
};
use albacore_rows::columns::{ColumnTensors, DeclaredColumn};
use albacore_rows::datatype::Datatype;
use albacore_rows::feature_names::{self, FEATURE_NAMES};
use albacore_rows::labels::{self, BYTES, LABEL};
use albacore_rows::{ColumnOrder, InvalidRows, binary_values};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{HeaderMap, Response};
use tonic::Code;

use super::super::limits::{DIMENSIONS_MAX, TENSORS_MAX};
use super::super::metrics::InferCall;
use super::super::reply_body::ReplyBody;
use super::super::request_body;
use super::super::request_error::RequestError;
use super::super::request_meta::{PRIORITY, RequestMeta, TIMEOUT};
use super::super::stages::SERVER_TIMING;
use super::super::validate::{self, DeclaredTensor, OutputSelection, RequestedOutput, VERSION};
use super::size_check::check_decoded_size;
use super::{GrpcService, decode, unary};

impl GrpcService {
    /// Answers one infer call and counts it.
    pub(super) async fn infer(
        &self,
        headers: &HeaderMap,
        body: Incoming,
        conn: &ConnState,
    ) -> Response<ReplyBody> {
        let mut call = InferCall::new(conn.arrival());
        let result = self
            .compute(headers, body, conn, &mut call)
            .await
            .map(|response| unary::reply(&response));
        if let Err(error) = &result {
            self.front.hold_error(&call.model, error.kind).await;
        }
        let code = result
            .as_ref()
            .map_or_else(|error| error.kind.code(), |_| Code::Ok);
        let (front, code) = (&self.front, format!("{code:?}"));
        front.metrics.count(front.event_loop, &call, "grpc", &code);
        let mut reply = result.unwrap_or_else(unary::error);
        if let Some(timing) = call.server_timing() {
            reply.headers_mut().insert(SERVER_TIMING, timing);
        }
        let reports = &front.load_reports;
        unary::change_trailers(&mut reply, |trailers| {
            reports.add_to_trailers(headers, &call.model, trailers);
        });
        reply
    }

    /// The steps of a call from its body to its results; notes in `call` what the metrics need.
    async fn compute(
        &self,
        headers: &HeaderMap,
        body: Incoming,
        conn: &ConnState,
        call: &mut InferCall,
    ) -> Result<ModelInferResponse, RequestError> {
        // Parse.
        let bytes = request_body::read(body, &self.body_budget, conn).await?;
        let complete_at = conn.arrival();
        let message = unary::message(headers, bytes)?;
        check_decoded_size(&message)?;
        let request: ModelInferRequest = decode(message)?;
        let (name, version) = (&request.model_name, &request.model_version);
        let model = self.front.find_model(name, version)?;
        call.model.clone_from(name);
        let mut meta = request_meta(call.arrival, headers, &request)?;
        meta.set_complete_at(complete_at);

        // Validate.
        let parse_start = Instant::now();
        let edition = model.edition();
        let info = edition.info();
        let input = GrpcInferRequest::validate(info, &request)?;
        let (rows, element) = (input.rows, input.datatype.element());
        call.kinds = input.kinds;
        validate::check_reply_size(info, rows, &input.outputs)
            .inspect_err(|_| conn.count(Limit::ReplyBytes))?;

        // Admit and submit.
        let model = meta.apply_to(model);
        let admission_start = Instant::now();
        let turn = model.front_turn(input.kinds).await;
        let mut reservation = model.reserve(rows, element, input.kinds)?;
        call.admission = admission_start.elapsed();
        input.write_rows(reservation.input_mut())?;
        // Before the queue's time begins: the stages of a call must not overlap.
        let input_time = parse_start.elapsed();
        let reply = reservation.submit();
        drop(turn);

        // Await the reply, without the request: its rows are in shared memory now.
        let (outputs, id) = (input.outputs, request.id);
        drop((request.inputs, request.raw_input_contents));
        let mut reply = meta.await_reply(reply).await?;
        let _turn = reply.front_turn().await;
        call.answered(rows, input_time, reply.timing());
        Ok(response(info, id, rows, &outputs, reply))
    }
}

/// Deadline and priority by the headers and the parameters of the request.
fn request_meta(
    arrival: Instant,
    headers: &HeaderMap,
    request: &ModelInferRequest,
) -> Result<RequestMeta, RequestError> {
    let mut meta = RequestMeta::new(arrival, headers)?;
    let number = |name: &str| {
        let parameter = request.parameters.get(name)?;
        Some(match parameter.parameter_choice.as_ref() {
            Some(&ParameterChoice::Int64Param(number)) => u64::try_from(number).ok(),
            Some(&ParameterChoice::Uint64Param(number)) => Some(number),
            _ => None,
        })
    };
    if let Some(timeout) = number(TIMEOUT) {
        meta.set_timeout(timeout)?;
    }
    if let Some(priority) = number(PRIORITY) {
        meta.set_priority(priority)?;
    }
    Ok(meta)
}

/// A request that is valid but for the values of its rows, which [`GrpcInferRequest::write_rows`]
/// checks.
pub(super) struct GrpcInferRequest<'a> {
    pub(super) rows: usize,
    pub(super) datatype: Datatype,
    outputs: Vec<RequestedOutput>,
    kinds: KindSet,
    data: GrpcRows<'a>,
    /// Of the columns, if it is not the model's.
    order: Option<ColumnOrder>,
}

/// The rows of a request.
enum GrpcRows<'a> {
    Tensor(GrpcInput<'a>),
    /// A tensor for each column.
    Columns(ColumnTensors, &'a [InferInputTensor], Vec<GrpcInput<'a>>),
}

impl<'a> GrpcInferRequest<'a> {
    pub(super) fn validate(
        model: &ModelInfo,
        request: &'a ModelInferRequest,
    ) -> Result<Self, RequestError> {
        let (outputs, kinds) = requested_outputs(model, request)?;
        if has_columns(request) {
            return Self::of_columns(model, request, outputs, kinds);
        }
        let input = only_input(model, request)?;
        let declared = DeclaredTensor {
            datatype: &input.datatype,
            shape: &input.shape,
        };
        let order = named_order(model, request, input)?;
        let (datatype, rows) = validate::check_input(model, &declared, order.as_ref())?;
        let data = GrpcInput::find(request, input)?;
        let columns = order.as_ref().map_or(model.features, ColumnOrder::width);
        data.check_length(rows * columns, datatype)?;
        let data = GrpcRows::Tensor(data);
        Ok(Self {
            rows,
            datatype,
            outputs,
            kinds,
            data,
            order,
        })
    }

    /// A request with an input for each column.
    fn of_columns(
        model: &ModelInfo,
        request: &'a ModelInferRequest,
        outputs: Vec<RequestedOutput>,
        kinds: KindSet,
    ) -> Result<Self, RequestError> {
        let declared = request.inputs.iter().map(|input| DeclaredColumn {
            name: &input.name,
            datatype: &input.datatype,
            shape: &input.shape,
        });
        let columns = ColumnTensors::check(model, &declared.collect::<Vec<_>>())?;
        let (inputs, raw) = (&request.inputs, &request.raw_input_contents);
        if !raw.is_empty() && raw.len() != inputs.len() {
            let (have, need) = (raw.len(), inputs.len());
            return Err(RequestError::invalid(format!(
                "raw_input_contents has {have} entries for {need} inputs"
            )));
        }
        let mut tensors = Vec::with_capacity(inputs.len());
        for (place, input) in inputs.iter().enumerate() {
            let data = GrpcInput::of(input, raw.get(place)).and_then(|data| {
                data.check_length(columns.rows, columns.datatype(place))?;
                Ok(data)
            });
            tensors.push(data.map_err(|error| {
                let name = validate::excerpt(&input.name);
                RequestError::invalid(format!("column {name:?}: {error}"))
            })?);
        }
        Ok(Self {
            rows: columns.rows,
            datatype: columns.row_datatype(),
            outputs,
            kinds,
            data: GrpcRows::Columns(columns, inputs, tensors),
            order: None,
        })
    }

    /// Checks the values and writes them as rows of the engine.
    pub(super) fn write_rows(&self, memory: &mut [u8]) -> Result<(), RequestError> {
        Ok(match (&self.data, &self.order) {
            (GrpcRows::Tensor(tensor), None) => tensor.write(self.datatype, memory),
            (GrpcRows::Tensor(tensor), Some(order)) => {
                let element = self.datatype.element();
                order.write(element, memory, |memory| {
                    tensor.write(self.datatype, memory)
                })
            }
            (GrpcRows::Columns(columns, inputs, tensors), _) => {
                columns.write(memory, |place, datatype, memory| {
                    tensors[place].write(datatype, memory).map_err(|error| {
                        let name = validate::excerpt(&inputs[place].name);
                        InvalidRows::new(format!("column {name:?}: {error}"))
                    })
                })
            }
        }?)
    }
}

/// The outputs of the reply. Either all are raw or none is: the protocol has no mixture.
fn requested_outputs(
    model: &ModelInfo,
    request: &ModelInferRequest,
) -> Result<(Vec<RequestedOutput>, KindSet), RequestError> {
    if request.outputs.len() > TENSORS_MAX {
        let outputs = request.outputs.len();
        return Err(RequestError::invalid(format!(
            "{outputs} outputs are more than {TENSORS_MAX}"
        )));
    }
    let is_true = |parameters: &HashMap<String, InferParameter>, name: &str| {
        let parameter = parameters.get(name);
        let choice = parameter.and_then(|parameter| parameter.parameter_choice.as_ref());
        choice == Some(&ParameterChoice::BoolParam(true))
    };
    let is_raw = !request.raw_input_contents.is_empty()
        || is_true(&request.parameters, "binary_data_output")
        || request
            .outputs
            .iter()
            .any(|output| is_true(&output.parameters, "binary_data"));
    let mut selection = OutputSelection::new(model);
    for output in &request.outputs {
        for extension in ["classification", "shared_memory_region"] {
            if output.parameters.contains_key(extension) {
                return Err(RequestError::invalid(format!(
                    "output {:?}: the extension {extension} is not supported",
                    validate::excerpt(&output.name)
                )));
            }
        }
        selection.add(&output.name, is_raw)?;
    }
    Ok(selection.or_default(is_raw))
}

fn only_input<'a>(
    model: &ModelInfo,
    request: &'a ModelInferRequest,
) -> Result<&'a InferInputTensor, RequestError> {
    let [input] = &request.inputs[..] else {
        return Err(RequestError::invalid(format!(
            "the request has {} inputs; model {:?} takes one, \"input\"",
            request.inputs.len(),
            model.name
        )));
    };
    if input.shape.len() > DIMENSIONS_MAX {
        let dimensions = input.shape.len();
        return Err(RequestError::invalid(format!(
            "input \"input\" has {dimensions} dimensions; it takes two, [rows, {}]",
            model.features
        )));
    }
    if input.parameters.contains_key("shared_memory_region") {
        return Err(RequestError::invalid(
            "input \"input\": shared memory regions are not supported; send the data",
        ));
    }
    Ok(input)
}

/// Whether there is an input for each column: several, or one that says so.
fn has_columns(request: &ModelInferRequest) -> bool {
    let content_type = request.parameters.get("content_type");
    let content_type = content_type.and_then(|value| value.parameter_choice.as_ref());
    let is_pandas =
        matches!(content_type, Some(ParameterChoice::StringParam(text)) if text == "pd");
    match &request.inputs[..] {
        [input] => is_pandas && input.shape.len() == 1,
        inputs => !inputs.is_empty(),
    }
}

/// The order of the columns by their names, a parameter of the input or of the request.
fn named_order(
    model: &ModelInfo,
    request: &ModelInferRequest,
    input: &InferInputTensor,
) -> Result<Option<ColumnOrder>, RequestError> {
    let own = input.parameters.get(FEATURE_NAMES);
    let Some(names) = own.or_else(|| request.parameters.get(FEATURE_NAMES)) else {
        return Ok(None);
    };
    match &names.parameter_choice {
        Some(ParameterChoice::StringParam(text)) => Ok(feature_names::order_of_text(model, text)?),
        _ => Err(feature_names::not_a_list().into()),
    }
}

/// The values of the input tensor.
#[derive(Clone, Copy)]
enum GrpcInput<'a> {
    Raw(&'a Bytes),
    Typed(&'a InferTensorContents),
}

impl<'a> GrpcInput<'a> {
    fn find(
        request: &'a ModelInferRequest,
        input: &'a InferInputTensor,
    ) -> Result<Self, RequestError> {
        match &request.raw_input_contents[..] {
            [] => Self::of(input, None),
            [raw] => Self::of(input, Some(raw)),
            several => Err(RequestError::invalid(format!(
                "raw_input_contents has {} entries for one input",
                several.len()
            ))),
        }
    }

    fn of(input: &'a InferInputTensor, raw: Option<&'a Bytes>) -> Result<Self, RequestError> {
        match (raw, &input.contents) {
            (None, Some(contents)) => Ok(Self::Typed(contents)),
            (None, None) => Err(RequestError::invalid("input \"input\" has no data")),
            (Some(raw), None) => Ok(Self::Raw(raw)),
            (Some(_), Some(_)) => Err(RequestError::invalid(
                "input \"input\" has both contents and raw_input_contents; send one of them",
            )),
        }
    }

    fn write(self, datatype: Datatype, memory: &mut [u8]) -> Result<(), InvalidRows> {
        match self {
            Self::Raw(bytes) => binary_values::write_bytes(datatype, bytes, memory),
            Self::Typed(contents) => binary_values::write_contents(datatype, contents, memory),
        }
    }

    /// Refuses a raw tensor whose size is wrong before memory is taken for its shape.
    fn check_length(self, values: usize, datatype: Datatype) -> Result<(), RequestError> {
        let (have, need) = match self {
            Self::Raw(bytes) => (bytes.len(), values.saturating_mul(datatype.bytes())),
            Self::Typed(_) => return Ok(()),
        };
        if have == need {
            return Ok(());
        }
        Err(RequestError::invalid(format!(
            "input \"input\" has {have} bytes of raw data where its shape needs {need}"
        )))
    }
}

/// The bytes of an output in shared memory; they are copied once, into the frame of the reply.
struct OutputBytes(Arc<Reply>, Kind);

impl AsRef<[u8]> for OutputBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.output(self.1).unwrap_or_default()
    }
}

fn response(
    model: &ModelInfo,
    id: String,
    rows: usize,
    outputs: &[RequestedOutput],
    reply: Reply,
) -> ModelInferResponse {
    let reply = Arc::new(reply);
    let mut response = ModelInferResponse {
        model_name: model.name.clone(),
        model_version: VERSION.to_owned(),
        id,
        ..Default::default()
    };
    for requested in outputs {
        let kind = requested.kind;
        let (Some(output), Some(values)) = (model.output(kind), reply.output(kind)) else {
            continue;
        };
        if requested.is_label {
            let classes = model.class_names.as_ref();
            let labels = classes.map(|it| labels::label_bytes(it, output, values));
            let contents = label_contents(&mut response, requested, labels.unwrap_or_default());
            response.outputs.push(label_tensor(rows, contents));
            continue;
        }
        let contents = if requested.binary {
            let bytes = Bytes::from_owner(OutputBytes(Arc::clone(&reply), kind));
            response.raw_output_contents.push(bytes);
            None
        } else {
            Some(typed_contents(output.element, values))
        };
        response.outputs.push(output_tensor(output, rows, contents));
    }
    response
}

/// The contents of labels that are not raw; raw ones are put into the response.
fn label_contents(
    response: &mut ModelInferResponse,
    requested: &RequestedOutput,
    labels: Vec<u8>,
) -> Option<InferTensorContents> {
    if requested.binary {
        response.raw_output_contents.push(labels.into());
        return None;
    }
    let texts = labels::texts(&labels);
    Some(InferTensorContents {
        bytes_contents: texts.map(|text| text.as_bytes().to_vec()).collect(),
        ..Default::default()
    })
}

fn label_tensor(rows: usize, contents: Option<InferTensorContents>) -> InferOutputTensor {
    InferOutputTensor {
        name: LABEL.to_owned(),
        datatype: BYTES.to_owned(),
        shape: vec![i64::try_from(rows).unwrap_or(i64::MAX)],
        contents,
        ..Default::default()
    }
}

fn output_tensor(
    output: &OutputInfo,
    rows: usize,
    contents: Option<InferTensorContents>,
) -> InferOutputTensor {
    let sizes = std::iter::once(&rows).chain(&output.row_shape);
    InferOutputTensor {
        name: validate::output_name(output.kind).to_owned(),
        datatype: Datatype::from_element(output.element).name().to_owned(),
        shape: sizes
            .map(|&size| i64::try_from(size).unwrap_or(i64::MAX))
            .collect(),
        contents,
        ..Default::default()
    }
}

fn typed_contents(element: ElementType, values: &[u8]) -> InferTensorContents {
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
