//! `POST /invocations` of MLflow and SageMaker, and predictions of Vertex AI: request bodies,
//! replies and errors.
//!
//! The reply is that of `predict` in Python: classes for a classifier of scikit-learn's API, values
//! otherwise.

use std::borrow::Cow;

use albacore_engine::{ClassRule, Kind, ModelClasses, ModelInfo, Reply, no_probabilities};
use albacore_rows::{Params, PredictFunction, Table};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::Value;

use super::super::request_error::{ErrorKind, RequestError};
use super::super::request_meta::single_header;
use super::super::validate::excerpt;
use super::infer::BodyForm;
use super::nested::{self, Frame};
use super::reply::{self, HttpReply, InferReply};
use super::request::HttpInferRequest;

const TEXT_CSV: &str = "text/csv";

/// Returns the reply to `GET /ping` and `GET /health`.
pub(super) fn ping(is_ready: bool) -> HttpReply {
    match is_ready {
        true => text(StatusCode::OK, "\n"),
        false => text(StatusCode::SERVICE_UNAVAILABLE, "\n"),
    }
}

/// Returns a text with the media type of JSON, as MLflow does.
pub(super) fn text(status: StatusCode, text: &str) -> HttpReply {
    let media_type = HeaderValue::from_static("application/json");
    reply::with_type(status, media_type, text.as_bytes().to_vec())
}

/// Returns the error for a call without a model name if the server does not have exactly one model.
pub(super) fn ambiguous_model_error(names: &[String]) -> RequestError {
    let message = format!(
        "this path requires a server with one model, but there are {}: send the request to \
         /models/NAME/invoke, where NAME is one of {names:?}",
        names.len()
    );
    RequestError::new(ErrorKind::NotFound, message)
}

/// Returns the body format according to the content type; JSON by default.
pub(super) fn body_form(headers: &HeaderMap) -> Result<BodyForm, RequestError> {
    let media_type = single_header(headers, &CONTENT_TYPE)?;
    let media_type = media_type.map_or("", |value| value.to_str().unwrap_or("?"));
    let mut parts = media_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    let is_csv = essence == TEXT_CSV;
    // `curl -d` sends this content type by default.
    let is_form = essence == "application/x-www-form-urlencoded";
    if !is_csv && !is_form && !matches!(&essence[..], "" | "application/json") {
        return Err(media_type_error(&format!(
            "Content-Type {:?} is not supported; send application/json or text/csv",
            excerpt(media_type)
        )));
    }
    let mut has_header = None;
    for part in parts.filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim_matches('"').to_ascii_lowercase();
        match (name.to_ascii_lowercase().as_str(), value.as_str()) {
            ("charset", "utf-8" | "utf8" | "us-ascii") => {}
            ("header", "present") if is_csv => has_header = Some(true),
            ("header", "absent") if is_csv => has_header = Some(false),
            // SageMaker: the rows have no label column.
            ("label_size", "0") if is_csv => {}
            _ => {
                return Err(media_type_error(&format!(
                    "parameter {:?} of the Content-Type is not supported; send charset=utf-8, or \
                     for text/csv header=present or header=absent",
                    excerpt(part)
                )));
            }
        }
    }
    Ok(match is_csv {
        true => BodyForm::Csv(has_header),
        false => BodyForm::Json(None),
    })
}

fn media_type_error(message: &str) -> RequestError {
    RequestError::new(ErrorKind::MediaType, message.to_owned())
}

/// Parses a request body.
pub(super) fn parse<'a>(
    model: &ModelInfo,
    body: &'a [u8],
    form: BodyForm,
) -> Result<HttpInferRequest<'a>, RequestError> {
    let table = match form {
        BodyForm::Csv(has_header) => Table::from_csv(model, body, has_header)?,
        BodyForm::Json(_) => Table::from_json(model, body)?,
    };
    check_function(model, table.params)?;
    HttpInferRequest::from_table(model, table, Kind::Value)
}

/// Rejects a request for probabilities if the model has none.
fn check_function(model: &ModelInfo, params: Params) -> Result<(), RequestError> {
    if params.predict_function != Some(PredictFunction::PredictProba) {
        return Ok(());
    }
    let name = &model.name;
    let rule = model.classes.as_ref().map(|classes| classes.rule);
    let Some(problem) = no_probabilities(rule) else {
        return Ok(());
    };
    Err(RequestError::invalid(format!(
        "parameter \"predict_fn\" is \"predict_proba\", but model {name:?} has no such function: \
         {problem}; leave it out"
    )))
}

/// Formats the reply; as CSV if `Accept` begins with it.
pub(super) fn print(
    headers: &HeaderMap,
    model: &ModelInfo,
    params: Params,
    reply: &Reply,
) -> InferReply {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let is_csv = accept.is_some_and(|accept| accept.trim_ascii_start().starts_with(TEXT_CSV));
    let frame = if is_csv {
        Frame::Lines
    } else {
        Frame::Predictions
    };
    let mut body = frame.begin();
    if let (Some(output), Some(values)) = (model.output(Kind::Value), reply.output(Kind::Value)) {
        let is_probability = match params.predict_function {
            Some(function) => function == PredictFunction::PredictProba,
            None => model.predicts_probabilities,
        };
        match classes(model).as_deref() {
            Some(classes) if is_probability && classes.rule == ClassRule::AboveHalf => {
                nested::print_pairs(&mut body, frame, output, values);
            }
            Some(classes) if !is_probability => {
                nested::print_classes(&mut body, frame, output, classes, values);
            }
            _ => nested::print_rows(&mut body, frame, output, values),
        }
    }
    frame.end(&mut body);
    match frame {
        Frame::Lines => InferReply::from_csv(body),
        Frame::Predictions => InferReply::from_json(body),
    }
}

/// The classes of `predict`, with user-defined names if there are any.
fn classes(model: &ModelInfo) -> Option<Cow<'_, ModelClasses>> {
    let classes = model.classes.as_ref()?;
    let Some(class_names) = &model.class_names else {
        return Some(Cow::Borrowed(classes));
    };
    let quoted = class_names
        .names
        .iter()
        .map(|name| Value::from(name.as_str()));
    Some(Cow::Owned(ModelClasses {
        rule: classes.rule,
        labels: quoted.map(|name| name.to_string()).collect(),
    }))
}

/// Returns the reply for an error, in MLflow's format.
pub(super) fn error(error: &RequestError) -> HttpReply {
    #[derive(Serialize)]
    struct Body<'a> {
        error_code: &'static str,
        message: &'a str,
    }
    let body = Body {
        error_code: code(error.kind),
        message: &error.message,
    };
    reply::error_of(error, &body)
}

/// MLflow's error code.
const fn code(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid | ErrorKind::Method | ErrorKind::MediaType => "BAD_REQUEST",
        ErrorKind::Slow | ErrorKind::TooLarge => "BAD_REQUEST",
        ErrorKind::NotFound => "RESOURCE_DOES_NOT_EXIST",
        ErrorKind::Overloaded => "REQUEST_LIMIT_EXCEEDED",
        ErrorKind::Unavailable => "TEMPORARILY_UNAVAILABLE",
        ErrorKind::Expired => "DEADLINE_EXCEEDED",
        ErrorKind::Failed => "INTERNAL_ERROR",
        ErrorKind::Unimplemented => "NOT_IMPLEMENTED",
    }
}
