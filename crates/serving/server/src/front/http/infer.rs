//! `POST /v2/models/{name}/infer`, and predictions and explanations of KServe's V1 protocol.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use albacore_connections::{ConnState, Limit};
use albacore_engine::{Kind, ModelHandle, ModelInfo};
use albacore_extensions::SharedMemoryRegions;
use albacore_rows::Table;
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;

use super::super::content_coding::ContentCoding;
use super::super::metrics::InferCall;
use super::super::request_error::{ErrorKind, RequestError};
use super::super::request_meta::{RequestMeta, single_header, whole_number};
use super::super::{request_body, validate};
use super::reply::{HttpReply, InferReply, JSON_LENGTH};
use super::request::HttpInferRequest;
use super::route::ModelPath;
use super::{HttpService, nested, reply, scoring};

/// The protocol of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InferForm {
    OpenInference,
    /// V1 `:predict`, which returns the value.
    Predictions,
    /// V1 `:explain`, which returns SHAP contributions.
    Explanations,
    /// MLflow, SageMaker and Vertex AI.
    Scoring,
}

/// The format of a request body, according to the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyForm {
    /// Length of the JSON; `None` for the whole body.
    Json(Option<usize>),
    /// Whether the first line is a header, if the request headers specify it.
    Csv(Option<bool>),
}

impl BodyForm {
    fn json_bytes(self) -> Option<usize> {
        match self {
            Self::Json(bytes) => bytes,
            Self::Csv(_) => None,
        }
    }
}

/// The model of a call, and its protocol.
#[derive(Debug)]
pub(super) struct InferTarget<'a> {
    path: ModelPath<'a>,
    form: InferForm,
}

impl<'a> InferTarget<'a> {
    pub(super) fn new(path: ModelPath<'a>, form: InferForm) -> Self {
        Self { path, form }
    }

    fn parse<'b>(
        &self,
        model: &ModelInfo,
        body: &'b [u8],
        form: BodyForm,
        regions: &SharedMemoryRegions,
    ) -> Result<HttpInferRequest<'b>, RequestError> {
        let kind = match (self.form, form) {
            (InferForm::OpenInference, form) => {
                return HttpInferRequest::parse(model, body, form.json_bytes(), regions);
            }
            (InferForm::Scoring, form) => return scoring::parse(model, body, form),
            (InferForm::Predictions, _) => Kind::Value,
            (InferForm::Explanations, _) => Kind::Contribs,
        };
        if form.json_bytes().is_some() {
            return Err(RequestError::invalid(
                "Inference-Header-Content-Length is a header of protocol v2: bodies of V1 are JSON",
            ));
        }
        let table = Table::from_instances(model, body)?;
        HttpInferRequest::from_table(model, table, kind)
    }
}

impl HttpService {
    /// Serves one infer call and counts it.
    pub(super) async fn infer(
        &self,
        headers: &HeaderMap,
        target: &InferTarget<'_>,
        body: Incoming,
        conn: &ConnState,
    ) -> HttpReply {
        let mut call = InferCall::new(conn.arrival());
        let result = self.compute(headers, target, body, conn, &mut call).await;
        let mut reply = match result {
            Ok(reply) => reply.into_http(ContentCoding::for_reply(headers), &call),
            Err(error) => {
                self.front.delay_error(&call.model, error.kind).await;
                match target.form {
                    InferForm::Scoring => scoring::error(&error),
                    _ => reply::error(&error),
                }
            }
        };
        let (front, code) = (&self.front, reply.status());
        front
            .load_reports
            .add_to_head(headers, &call.model, reply.headers_mut());
        front
            .metrics
            .count(front.event_loop, &call, "http", code.as_str());
        reply
    }

    /// Processes a call from its head to its results; records in `call` the values for metrics.
    async fn compute(
        &self,
        headers: &HeaderMap,
        target: &InferTarget<'_>,
        body: Incoming,
        conn: &ConnState,
        call: &mut InferCall,
    ) -> Result<InferReply, RequestError> {
        let path = &target.path;
        let (model, form, mut meta) = match self.admit_head(headers, target, call) {
            Ok(head) => head,
            Err(error) => {
                request_body::discard(body);
                return Err(error);
            }
        };
        let (bytes, model) = self.read_body(body, conn, model, path).await?;
        meta.set_complete_at(conn.arrival());
        let parse_start = Instant::now();

        // Parse and validate.
        let bytes = request_body::decompress(headers, bytes, conn)?;
        let revision = model.revision();
        let regions = &self.front.regions;
        let request = target.parse(revision.info(), &bytes, form, regions)?;
        call.kinds = request.kinds;
        request.apply_parameters(&mut meta)?;
        validate::check_reply_size(revision.info(), request.rows, &request.outputs)
            .inspect_err(|_| conn.count(Limit::ReplyBytes))?;

        // Admit and submit.
        let model = meta.apply_to(model);
        let admission_start = Instant::now();
        let permit = model.front_permit(request.kinds).await;
        let element = request.datatype.element();
        let mut reservation = model.reserve(request.rows, element, request.kinds)?;
        call.admission = admission_start.elapsed();
        request.write_rows(revision.info(), reservation.input_mut())?;
        // Measured before the queue time begins, because the stages of a call must not overlap.
        let input_time = parse_start.elapsed();
        let reply = reservation.submit();
        drop(permit);

        // Drop the body before awaiting the reply: its rows are in shared memory now.
        let (rows, id, outputs) = (request.rows, request.id, request.outputs);
        let params = request.params;
        drop(bytes);
        let mut reply = meta.await_reply(reply).await?;
        let _permit = reply.front_permit().await;
        validate::write_regions(&outputs, &reply)?;
        call.set_answered(rows, input_time, reply.timing());
        let (model, id) = (revision.info(), id.as_deref());
        let print_rows = |key| InferReply::from_json(nested::print(key, model, &outputs, &reply));
        Ok(match target.form {
            InferForm::OpenInference => InferReply::print(model, id, rows, &outputs, &reply),
            InferForm::Predictions => print_rows("predictions"),
            InferForm::Explanations => print_rows("explanations"),
            InferForm::Scoring => scoring::print(headers, model, params, &reply),
        })
    }

    /// Finds the model, parses the headers, and rejects a request that cannot meet its deadline
    /// before its body is read, because reading is most of the cost of a rejection.
    fn admit_head(
        &self,
        headers: &HeaderMap,
        target: &InferTarget<'_>,
        call: &mut InferCall,
    ) -> Result<(ModelHandle, BodyForm, RequestMeta), RequestError> {
        let path = &target.path;
        if target.form == InferForm::Scoring && path.name.is_empty() {
            return Err(scoring::ambiguous_model_error(&self.front.engine.names()));
        }
        let model = self.front.find_model(&path.name, &path.version)?;
        let form = match target.form {
            InferForm::Scoring => scoring::body_form(headers)?,
            _ => BodyForm::Json(json_bytes(headers)?),
        };
        let meta = RequestMeta::new(call.arrival, headers)?;
        call.model = path.name.clone().into_owned();
        let model = meta.apply_to(model);
        model.admit_early()?;
        Ok((model, form, meta))
    }

    /// Reads the body. If it has arrived completely, the model handle is kept; otherwise the model
    /// is looked up again after the wait, because another version may be served by then.
    async fn read_body(
        &self,
        body: Incoming,
        conn: &ConnState,
        model: ModelHandle,
        path: &ModelPath<'_>,
    ) -> Result<(Bytes, ModelHandle), RequestError> {
        let mut reading = pin!(request_body::read(body, &self.body_budget, conn));
        let first_poll = poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await;
        if let Poll::Ready(bytes) = first_poll {
            return Ok((bytes?, model));
        }
        drop(model); // a handle keeps its version in the workers
        let bytes = reading.await?;
        let model = self.front.find_model(&path.name, &path.version)?;
        Ok((bytes, model))
    }
}

/// Length of the JSON in the body, according to the headers; `None` for the whole body.
///
/// Form data is accepted as JSON because `curl -d` sends this content type by default. Octet
/// streams are accepted because `tritonclient.http.aio` sends this content type for every body; the
/// length of the JSON is then in the other header.
pub(super) fn json_bytes(headers: &HeaderMap) -> Result<Option<usize>, RequestError> {
    let media_type = single_header(headers, &CONTENT_TYPE)?;
    let media_type = media_type.map(|value| value.to_str().unwrap_or("?"));
    let essence = media_type.map(|text| {
        let essence = text.split(';').next().unwrap_or(text);
        essence.trim().to_ascii_lowercase()
    });
    match essence.as_deref() {
        None | Some("" | "application/json" | "application/x-www-form-urlencoded") => {}
        Some(text) if text.starts_with("application/") && text.ends_with("+json") => {}
        Some("application/octet-stream") => {}
        Some(text) => {
            return Err(RequestError::new(
                ErrorKind::MediaType,
                format!(
                    "Content-Type {:?} is not supported; send application/json, or \
                     application/octet-stream with Inference-Header-Content-Length",
                    validate::excerpt(text)
                ),
            ));
        }
    }
    let Some(length) = single_header(headers, &JSON_LENGTH)? else {
        return Ok(None);
    };
    let number = length.to_str().ok().and_then(whole_number);
    match number.and_then(|number| usize::try_from(number).ok()) {
        Some(length) => Ok(Some(length)),
        None => Err(RequestError::invalid(format!(
            "Inference-Header-Content-Length {:?} is not a number of bytes",
            validate::excerpt(&String::from_utf8_lossy(length.as_bytes()))
        ))),
    }
}
