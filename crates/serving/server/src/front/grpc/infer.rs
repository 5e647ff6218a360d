//! `ModelInfer`. A reply contains raw bytes if the request does or if it asks for them; otherwise
//! typed lists.

use std::sync::Arc;
use std::time::Instant;

use albacore_call_counts::SERVER_TIMING;
use albacore_connections::{ConnState, Limit};
use albacore_engine::{ElementType, Kind, KindSet, ModelInfo, OutputInfo, Reply};
use albacore_extensions::{Classification, RegionSlice, SharedMemoryRegions};
use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_infer_request::InferInputTensor;
use albacore_proto::inference::model_infer_response::InferOutputTensor;
use albacore_proto::inference::{InferTensorContents, ModelInferRequest, ModelInferResponse};
use albacore_rows::columns::{BinarySize, ColumnKind, ColumnTensors, DeclaredColumn, is_column};
use albacore_rows::datatype::Datatype;
use albacore_rows::feature_names::{self, FEATURE_NAMES};
use albacore_rows::labels::{self, BYTES, LABEL};
use albacore_rows::{ColumnOrder, InvalidRows};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{HeaderMap, Response};
use tonic::Code;

use super::super::FrontContext;
use super::super::limits::{DIMENSIONS_MAX, TENSORS_MAX};
use super::super::metrics::InferCall;
use super::super::reply_body::ReplyBody;
use super::super::request_body;
use super::super::request_error::{ErrorKind, RequestError};
use super::super::request_meta::{PRIORITY, RequestMeta, TIMEOUT};
use super::super::validate::{
    self, DeclaredTensor, OutputForm, OutputSelection, RequestedOutput, VERSION,
};
use super::parameters::{
    CLASSIFICATION, ParameterMap, is_shared, region, region_parameters, whole_number,
};
use super::size_check::check_decoded_size;
use super::{GrpcService, decode, unary};

/// The origin of infer requests, and the front that serves them.
pub(super) struct InferSource<'a> {
    pub(super) front: &'a FrontContext,
    pub(super) headers: &'a HeaderMap,
    pub(super) conn: &'a ConnState,
}

impl GrpcService {
    /// Serves one infer call and counts it.
    pub(super) async fn infer(
        &self,
        headers: &HeaderMap,
        body: Incoming,
        conn: &ConnState,
    ) -> Response<ReplyBody> {
        let front: &FrontContext = &self.front;
        let source = InferSource {
            front,
            headers,
            conn,
        };
        let mut call = InferCall::new(conn.arrival());
        let result = self
            .compute(&source, body, &mut call)
            .await
            .map(|response| unary::reply(&response));
        let error = result.as_ref().err().map(|error| error.kind);
        source.count(&call, error).await;
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

    /// Processes a call from its body to its results; records in `call` the values for metrics.
    async fn compute(
        &self,
        source: &InferSource<'_>,
        body: Incoming,
        call: &mut InferCall,
    ) -> Result<ModelInferResponse, RequestError> {
        let bytes = request_body::read(body, &self.body_budget, source.conn).await?;
        let complete_at = source.conn.arrival();
        let request = read_request(source.headers, bytes)?;
        source.compute(request, complete_at, call).await
    }
}

/// Decodes a framed message.
pub(super) fn read_request(
    headers: &HeaderMap,
    framed: Bytes,
) -> Result<ModelInferRequest, RequestError> {
    let message = unary::message(headers, framed)?;
    check_decoded_size(&message)?;
    decode(message)
}

impl InferSource<'_> {
    /// Processes a call from its message, whose last byte arrived at `complete_at`, to its results.
    pub(super) async fn compute(
        &self,
        request: ModelInferRequest,
        complete_at: Instant,
        call: &mut InferCall,
    ) -> Result<ModelInferResponse, RequestError> {
        let (name, version) = (&request.model_name, &request.model_version);
        let model = self.front.find_model(name, version)?;
        call.model.clone_from(name);
        let mut meta = request_meta(call.arrival, self.headers, &request)?;
        meta.set_complete_at(complete_at);

        // Validate.
        let parse_start = Instant::now();
        let revision = model.revision();
        let info = revision.info();
        let input = GrpcInferRequest::validate(info, &request, &self.front.regions)?;
        let (rows, element) = (input.rows, input.datatype.element());
        call.kinds = input.kinds;
        validate::check_reply_size(info, rows, &input.outputs)
            .inspect_err(|_| self.conn.count(Limit::ReplyBytes))?;

        // Admit and submit.
        let model = meta.apply_to(model);
        let admission_start = Instant::now();
        let permit = model.front_permit(input.kinds).await;
        let mut reservation = model.reserve(rows, element, input.kinds)?;
        call.admission = admission_start.elapsed();
        input.write_rows(reservation.input_mut())?;
        // Measured before the queue time begins, because the stages of a call must not overlap.
        let input_time = parse_start.elapsed();
        let reply = reservation.submit();
        drop(permit);

        // Drop the request before awaiting the reply: its rows are in shared memory now.
        let (outputs, id) = (input.outputs, request.id);
        drop((request.inputs, request.raw_input_contents));
        let mut reply = meta.await_reply(reply).await?;
        let _permit = reply.front_permit().await;
        validate::write_regions(&outputs, &reply)?;
        call.set_answered(rows, input_time, reply.timing());
        Ok(response(info, id, rows, &outputs, reply))
    }

    /// Counts a call. An error is delayed first, for as long as the front requires.
    pub(super) async fn count(&self, call: &InferCall, error: Option<ErrorKind>) {
        if let Some(kind) = error {
            self.front.delay_error(&call.model, kind).await;
        }
        let code = error.map_or(Code::Ok, ErrorKind::code);
        let (front, code) = (self.front, format!("{code:?}"));
        front.metrics.count(front.event_loop, call, "grpc", &code);
    }
}

/// Reads deadline and priority from the headers and parameters of the request.
fn request_meta(
    arrival: Instant,
    headers: &HeaderMap,
    request: &ModelInferRequest,
) -> Result<RequestMeta, RequestError> {
    let mut meta = RequestMeta::new(arrival, headers)?;
    if let Some(timeout) = whole_number(&request.parameters, TIMEOUT) {
        meta.set_timeout(timeout)?;
    }
    if let Some(priority) = whole_number(&request.parameters, PRIORITY) {
        meta.set_priority(priority)?;
    }
    Ok(meta)
}

/// A validated request, except for the values of its rows, which [`GrpcInferRequest::write_rows`]
/// checks.
pub(super) struct GrpcInferRequest<'a> {
    pub(super) rows: usize,
    pub(super) datatype: Datatype,
    outputs: Vec<RequestedOutput>,
    kinds: KindSet,
    data: GrpcRows<'a>,
    /// Column order of the request, if it differs from the model's.
    order: Option<ColumnOrder>,
}

/// The requested outputs, in order and as a set.
struct SelectedOutputs {
    outputs: Vec<RequestedOutput>,
    kinds: KindSet,
}

/// The row data of a request.
enum GrpcRows<'a> {
    Tensor(GrpcInput<'a>),
    /// One tensor per column.
    Columns(ColumnTensors, &'a [InferInputTensor], Vec<GrpcInput<'a>>),
}

impl<'a> GrpcInferRequest<'a> {
    pub(super) fn validate(
        model: &ModelInfo,
        request: &'a ModelInferRequest,
        regions: &SharedMemoryRegions,
    ) -> Result<Self, RequestError> {
        let (outputs, kinds) = requested_outputs(model, request, regions)?;
        if is_columnar(request) {
            let selected = SelectedOutputs { outputs, kinds };
            return Self::validate_columnar(model, request, selected, regions);
        }
        let input = only_input(model, request)?;
        let declared = DeclaredTensor {
            datatype: &input.datatype,
            shape: &input.shape,
        };
        let order = named_order(model, request, input)?;
        let (datatype, rows) = validate::check_input(model, &declared, order.as_ref())?;
        let data = GrpcInput::find(request, input, regions)?;
        let columns = order.as_ref().map_or(model.features, ColumnOrder::width);
        data.check_length(&datatype.into(), rows * columns)?;
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

    /// Validates a columnar request, with one input per column.
    fn validate_columnar(
        model: &ModelInfo,
        request: &'a ModelInferRequest,
        SelectedOutputs { outputs, kinds }: SelectedOutputs,
        regions: &SharedMemoryRegions,
    ) -> Result<Self, RequestError> {
        let declared = request.inputs.iter().map(|input| DeclaredColumn {
            name: &input.name,
            datatype: &input.datatype,
            shape: &input.shape,
        });
        let columns = ColumnTensors::check(model, &declared.collect::<Vec<_>>())?;
        let (inputs, raw) = (&request.inputs, &request.raw_input_contents);
        // As in Triton, inputs in shared memory have no entry in `raw_input_contents`.
        let need = inputs.iter().filter(|input| !is_shared(input)).count();
        if !raw.is_empty() && raw.len() != need {
            let have = raw.len();
            return Err(RequestError::invalid(format!(
                "raw_input_contents has {have} entries for {need} inputs outside of shared memory"
            )));
        }
        let mut tensors = Vec::with_capacity(inputs.len());
        let mut raw = raw.iter();
        for (index, input) in inputs.iter().enumerate() {
            let entry = if is_shared(input) { None } else { raw.next() };
            let data = GrpcInput::new(input, entry, regions).and_then(|data| {
                data.check_length(&columns.kinds()[index], columns.rows)?;
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

    /// Checks the values and writes them as engine rows.
    pub(super) fn write_rows(&self, memory: &mut [u8]) -> Result<(), RequestError> {
        let numbers = &self.datatype.into();
        Ok(match (&self.data, &self.order) {
            (GrpcRows::Tensor(tensor), None) => tensor.write(numbers, memory),
            (GrpcRows::Tensor(tensor), Some(order)) => {
                let element = self.datatype.element();
                order.write(element, memory, |memory| tensor.write(numbers, memory))
            }
            (GrpcRows::Columns(columns, inputs, tensors), _) => {
                columns.write(memory, |index, kind, memory| {
                    tensors[index].write(kind, memory).map_err(|error| {
                        let name = validate::excerpt(&inputs[index].name);
                        InvalidRows::new(format!("column {name:?}: {error}"))
                    })
                })
            }
        }?)
    }
}

/// Returns the requested outputs. They are all raw or all typed, because the protocol does not
/// allow a mixture.
fn requested_outputs(
    model: &ModelInfo,
    request: &ModelInferRequest,
    regions: &SharedMemoryRegions,
) -> Result<(Vec<RequestedOutput>, KindSet), RequestError> {
    if request.outputs.len() > TENSORS_MAX {
        let outputs = request.outputs.len();
        return Err(RequestError::invalid(format!(
            "the request has {outputs} outputs, more than {TENSORS_MAX}"
        )));
    }
    let is_true = |parameters: &ParameterMap, name: &str| {
        let parameter = parameters.get(name);
        let choice = parameter.and_then(|parameter| parameter.parameter_choice.as_ref());
        choice == Some(&ParameterChoice::BoolParam(true))
    };
    let is_raw = !request.raw_input_contents.is_empty()
        || request.inputs.iter().any(is_shared)
        || is_true(&request.parameters, "binary_data_output")
        || request
            .outputs
            .iter()
            .any(|output| is_true(&output.parameters, "binary_data"));
    let mut selection = OutputSelection::new(model);
    for output in &request.outputs {
        let slice = region(&output.parameters).find(regions, &output.name)?;
        let classes = whole_number(&output.parameters, CLASSIFICATION);
        let form = validate::output_form(&output.name, classes, slice)?;
        selection.add_as(&output.name, is_raw, form)?;
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
            "input \"input\" has {dimensions} dimensions; expected two, [rows, {}]",
            model.features
        )));
    }
    Ok(input)
}

/// Whether the request is columnar: it has several inputs, or one that is declared as a column.
fn is_columnar(request: &ModelInferRequest) -> bool {
    let content_type = request.parameters.get("content_type");
    let content_type = content_type.and_then(|value| value.parameter_choice.as_ref());
    let is_pandas =
        matches!(content_type, Some(ParameterChoice::StringParam(text)) if text == "pd");
    match &request.inputs[..] {
        [input] => is_column(&input.datatype, &input.shape, is_pandas),
        inputs => !inputs.is_empty(),
    }
}

/// Column order of parameter `feature_names`, of the input or else of the request.
fn named_order(
    model: &ModelInfo,
    request: &ModelInferRequest,
    input: &InferInputTensor,
) -> Result<Option<ColumnOrder>, RequestError> {
    let names = input.parameters.get(FEATURE_NAMES);
    let Some(names) = names.or_else(|| request.parameters.get(FEATURE_NAMES)) else {
        return Ok(None);
    };
    match &names.parameter_choice {
        Some(ParameterChoice::StringParam(text)) => {
            Ok(feature_names::order_from_text(model, text)?)
        }
        _ => Err(feature_names::not_a_list().into()),
    }
}

/// The values of an input tensor.
enum GrpcInput<'a> {
    Raw(&'a Bytes),
    Typed(&'a InferTensorContents),
    Shared(RegionSlice),
}

impl<'a> GrpcInput<'a> {
    fn find(
        request: &'a ModelInferRequest,
        input: &'a InferInputTensor,
        regions: &SharedMemoryRegions,
    ) -> Result<Self, RequestError> {
        match &request.raw_input_contents[..] {
            [] => Self::new(input, None, regions),
            [raw] => Self::new(input, Some(raw), regions),
            several => Err(RequestError::invalid(format!(
                "raw_input_contents has {} entries for one input",
                several.len()
            ))),
        }
    }

    fn new(
        input: &'a InferInputTensor,
        raw: Option<&'a Bytes>,
        regions: &SharedMemoryRegions,
    ) -> Result<Self, RequestError> {
        if let Some(slice) = region(&input.parameters).find(regions, &input.name)? {
            let has_data = raw.is_some() || input.contents.is_some();
            validate::check_shared(BinarySize::Exact(slice.len()), has_data, &slice)?;
            return Ok(Self::Shared(slice));
        }
        match (raw, &input.contents) {
            (None, Some(contents)) => Ok(Self::Typed(contents)),
            (None, None) => Err(RequestError::invalid("input \"input\" has no data")),
            (Some(raw), None) => Ok(Self::Raw(raw)),
            (Some(_), Some(_)) => Err(RequestError::invalid(
                "input \"input\" has both contents and raw_input_contents; send one of them",
            )),
        }
    }

    fn write(&self, kind: &ColumnKind, memory: &mut [u8]) -> Result<(), InvalidRows> {
        match self {
            Self::Raw(bytes) => kind.write_bytes(bytes, memory),
            Self::Typed(contents) => kind.write_contents(contents, memory),
            Self::Shared(slice) => validate::write_shared(slice, kind, memory),
        }
    }

    /// Rejects a raw tensor of the wrong size, before memory is allocated for its shape.
    fn check_length(&self, kind: &ColumnKind, values: usize) -> Result<(), RequestError> {
        let need = kind.binary_size(values);
        let have = match self {
            Self::Raw(bytes) => bytes.len(),
            Self::Typed(_) => return Ok(()),
            Self::Shared(slice) => return validate::check_shared(need, false, slice),
        };
        if need.admits(have) {
            return Ok(());
        }
        Err(RequestError::invalid(format!(
            "input \"input\" has {have} bytes of raw data where its shape needs {need}"
        )))
    }
}

/// Bytes of an output in shared memory; they are copied once, into the gRPC frame.
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
        let mut tensor = output_tensor(output, rows);
        let raw = match &requested.form {
            OutputForm::Values if requested.binary => {
                Bytes::from_owner(OutputBytes(Arc::clone(&reply), kind))
            }
            OutputForm::Values => {
                tensor.contents = Some(typed_contents(output.element, values));
                Bytes::new()
            }
            OutputForm::Classes(count) => {
                let classes = Classification::new(model, output, *count, values);
                BYTES.clone_into(&mut tensor.datatype);
                tensor.shape = vec![size(rows), size(classes.row_classes())];
                if requested.binary {
                    classes.packed().into()
                } else {
                    tensor.contents = Some(typed_texts(classes.texts().iter()));
                    Bytes::new()
                }
            }
            OutputForm::Labels => {
                let classes = model.class_names.as_ref();
                let labels = classes.map(|it| labels::label_bytes(it, output, values));
                let labels = labels.unwrap_or_default();
                LABEL.clone_into(&mut tensor.name);
                BYTES.clone_into(&mut tensor.datatype);
                tensor.shape = vec![size(rows)];
                if requested.binary {
                    labels.into()
                } else {
                    tensor.contents = Some(typed_texts(labels::texts(&labels)));
                    Bytes::new()
                }
            }
            OutputForm::Region(slice) => {
                tensor.parameters = region_parameters(slice);
                Bytes::new()
            }
        };
        // As in Triton, an output in shared memory has an entry, too.
        if requested.binary {
            response.raw_output_contents.push(raw);
        }
        response.outputs.push(tensor);
    }
    response
}

fn size(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn typed_texts(texts: impl Iterator<Item = impl AsRef<str>>) -> InferTensorContents {
    InferTensorContents {
        bytes_contents: texts.map(|text| text.as_ref().into()).collect(),
        ..Default::default()
    }
}

fn output_tensor(output: &OutputInfo, rows: usize) -> InferOutputTensor {
    let sizes = std::iter::once(&rows).chain(&output.row_shape);
    InferOutputTensor {
        name: validate::output_name(output.kind).to_owned(),
        datatype: Datatype::from_element(output.element).name().to_owned(),
        shape: sizes.map(|&length| size(length)).collect(),
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
