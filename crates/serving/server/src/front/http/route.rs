//! Routing by path and method.

use std::borrow::Cow;

use albacore_extensions::{RepositoryCall, UnsupportedCall};
use albacore_server_args::PlatformRoutes;
use hyper::Method;

use super::super::request_error::{ErrorKind, RequestError};
use super::super::validate::excerpt;

/// A call of the HTTP API.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// `GET /`, liveness in KServe's V1 protocol
    Alive,
    /// `GET /v2`
    Server,
    /// `GET /v2/health/live`
    Live,
    /// `GET /v2/health/ready`
    Ready,
    /// `GET /v2/models/{name}[/versions/{version}]`
    Model(ModelPath<'a>),
    /// `GET /v2/models/{name}[/versions/{version}]/ready`
    ModelReady(ModelPath<'a>),
    /// `POST /v2/models/{name}[/versions/{version}]/infer`
    Infer(ModelPath<'a>),
    /// `GET /v2/models/{name}[/versions/{version}]/config`
    Config(ModelPath<'a>),
    /// `GET /v2/models[/{name}[/versions/{version}]]/stats`; an empty name means all models.
    Stats(ModelPath<'a>),
    /// `POST /v2/repository/index`; `GET` is accepted, too.
    Index,
    /// `POST /v2/repository/models/{name}/load` and `/unload`
    Repository(Cow<'a, str>, RepositoryCall),
    /// `GET /v2/systemsharedmemory[/region/{name}]/status`; an empty name means all regions.
    RegionStatus(Cow<'a, str>),
    /// `POST /v2/systemsharedmemory/region/{name}/register`
    Register(Cow<'a, str>),
    /// `POST /v2/systemsharedmemory[/region/{name}]/unregister`; an empty name means all regions.
    Unregister(Cow<'a, str>),
    /// Other calls of Triton under `/v2` and of SageMaker under `/models`, which are rejected
    /// explicitly.
    Unsupported(UnsupportedCall),
    /// `GET /v1/models`
    ModelNames,
    /// `GET /v1/models/{name}`
    ModelStatus(ModelPath<'a>),
    /// `POST /v1/models/{name}:predict`
    Predict(ModelPath<'a>),
    /// `POST /v1/models/{name}:explain`; SHAP contributions.
    Explain(ModelPath<'a>),
    /// `GET /ping` and `GET /health` of MLflow and SageMaker
    Ping,
    /// `GET /version` of MLflow
    Version,
    /// `POST /invocations` of MLflow and SageMaker, for the only model
    Invocations,
    /// `POST /models/{name}/invoke` of SageMaker's multi-model containers
    Invoke(ModelPath<'a>),
    /// `GET /metrics`
    Metrics,
    /// `GET /albacore/v1/state`
    State,
}

impl Route<'_> {
    /// Whether the reply can change at any time, so that it must not be cached.
    pub(super) fn is_volatile(&self) -> bool {
        match self {
            Self::Live | Self::Ready | Self::ModelReady(_) => true,
            Self::Alive | Self::ModelNames | Self::ModelStatus(_) | Self::Ping => true,
            Self::Metrics | Self::State | Self::Stats(_) | Self::Index => true,
            Self::RegionStatus(_) => true,
            Self::Register(_) | Self::Unregister(_) | Self::Unsupported(_) => false,
            Self::Server | Self::Model(_) | Self::Config(_) | Self::Version => false,
            Self::Invocations | Self::Invoke(_) => false,
            Self::Infer(_) | Self::Predict(_) | Self::Explain(_) => false,
            Self::Repository(..) => false,
        }
    }
}

/// Name and version of a model in a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModelPath<'a> {
    pub(super) name: Cow<'a, str>,
    /// The version, unescaped; empty matches any version.
    pub(super) version: Cow<'a, str>,
}

/// Error for an unknown path or method.
#[derive(Debug)]
pub(super) struct RouteError {
    pub(super) error: RequestError,
    /// The methods supported by the path; empty if the path is unknown.
    pub(super) allow: &'static str,
}

/// Parses method and path. `HEAD` is treated as `GET`.
pub(super) fn parse<'a>(
    method: &Method,
    path: &'a str,
    platform_routes: &PlatformRoutes,
) -> Result<Route<'a>, RouteError> {
    let route = platform_route(path, platform_routes).or_else(|| parse_path(path));
    let route = route.ok_or_else(|| RouteError {
        error: RequestError::new(
            ErrorKind::NotFound,
            format!(
                "{:?} is not a path of the Open Inference Protocol v2, nor of V1 (/v1/models), nor of \
                 MLflow (/invocations)",
                excerpt(path)
            ),
        ),
        allow: "",
    })?;
    let allow = match route {
        Route::Infer(_) | Route::Predict(_) | Route::Explain(_) | Route::Repository(..) => "POST",
        Route::Invocations | Route::Invoke(_) => "POST",
        Route::Register(_) | Route::Unregister(_) => "POST",
        Route::Unsupported(UnsupportedCall::MultiModel) => "POST, GET, HEAD, DELETE",
        Route::Index | Route::Unsupported(_) => "POST, GET",
        _ => "GET, HEAD",
    };
    if allow.split(", ").any(|allowed| allowed == method.as_str()) {
        return Ok(route);
    }
    let path = excerpt(path);
    let message = format!(
        "{path:?} supports {allow}, not {:?}",
        excerpt(method.as_str())
    );
    Err(RouteError {
        error: RequestError::new(ErrorKind::Method, message),
        allow,
    })
}

/// The call at a path configured by the platform (`PlatformRoutes`).
fn platform_route(path: &str, platform_routes: &PlatformRoutes) -> Option<Route<'static>> {
    if platform_routes.predict.as_deref() == Some(path) {
        return Some(Route::Invocations);
    }
    (platform_routes.health.as_deref() == Some(path)).then_some(Route::Ping)
}

fn parse_path(path: &str) -> Option<Route<'_>> {
    match path {
        "/metrics" => return Some(Route::Metrics),
        "/albacore/v1/state" => return Some(Route::State),
        "/" => return Some(Route::Alive),
        "/ping" | "/health" => return Some(Route::Ping),
        "/version" => return Some(Route::Version),
        "/invocations" => return Some(Route::Invocations),
        "/models" => return Some(Route::Unsupported(UnsupportedCall::MultiModel)),
        _ => {}
    }
    if let Some(rest) = path.strip_prefix("/models/") {
        let (name, call) = rest.split_once('/').unwrap_or((rest, ""));
        return match call {
            _ if name.is_empty() => None,
            "" if !rest.ends_with('/') => Some(Route::Unsupported(UnsupportedCall::MultiModel)),
            "invoke" => Some(Route::Invoke(model_path(name, "")?)),
            _ => None,
        };
    }
    if let Some(rest) = path.strip_prefix("/v1/models") {
        return parse_v1(rest);
    }
    let rest = path.strip_prefix("/v2")?;
    let rest = match rest.strip_prefix('/') {
        Some(rest) => rest.strip_suffix('/').unwrap_or(rest),
        None if rest.is_empty() => rest,
        None => return None,
    };
    // bound: split into at most seven segments; the longest path has five
    let pieces: Vec<&str> = rest.splitn(7, '/').collect();
    Some(match pieces[..] {
        [""] => Route::Server,
        ["health", "live"] => Route::Live,
        ["health", "ready"] => Route::Ready,
        ["models", "stats"] => Route::Stats(model_path("", "")?),
        ["repository", "index"] => Route::Index,
        ["repository", "models", name, "load"] => {
            Route::Repository(unescape(name)?, RepositoryCall::Load)
        }
        ["repository", "models", name, "unload"] => {
            Route::Repository(unescape(name)?, RepositoryCall::Unload)
        }
        ["systemsharedmemory", ref rest @ ..] => return parse_regions(rest),
        ["models", _, "trace", "setting"] | ["trace", "setting"] => {
            Route::Unsupported(UnsupportedCall::Trace)
        }
        ["logging"] => Route::Unsupported(UnsupportedCall::Logging),
        ["cudasharedmemory", ..] => Route::Unsupported(UnsupportedCall::CudaSharedMemory),
        ["models", name, ref rest @ ..] => {
            let (version, call) = match rest {
                ["versions", version, call @ ..] if !version.is_empty() => (*version, call),
                call => ("", call),
            };
            let path = model_path(name, version)?;
            match call {
                [] => Route::Model(path),
                ["ready"] => Route::ModelReady(path),
                ["infer"] => Route::Infer(path),
                ["config"] => Route::Config(path),
                ["stats"] => Route::Stats(path),
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// Parses the segments after `/v2/systemsharedmemory`.
fn parse_regions<'a>(pieces: &[&'a str]) -> Option<Route<'a>> {
    let (name, call) = match *pieces {
        [call @ ("status" | "unregister")] => ("", call),
        ["region", name, call] if !name.is_empty() => (name, call),
        _ => return None,
    };
    let name = unescape(name)?;
    Some(match call {
        "status" => Route::RegionStatus(name),
        "register" => Route::Register(name),
        "unregister" => Route::Unregister(name),
        _ => return None,
    })
}

/// Parses the path after `/v1/models`.
fn parse_v1(rest: &str) -> Option<Route<'_>> {
    let name = match rest.strip_prefix('/') {
        None if rest.is_empty() => "",
        None => return None,
        Some(name) => name,
    };
    if name.is_empty() {
        return Some(Route::ModelNames);
    }
    if name.contains('/') {
        return None;
    }
    Some(match name.rsplit_once(':') {
        Some((name, "predict")) => Route::Predict(model_path(name, "")?),
        Some((name, "explain")) => Route::Explain(model_path(name, "")?),
        _ => Route::ModelStatus(model_path(name, "")?),
    })
}

fn model_path<'a>(name: &'a str, version: &'a str) -> Option<ModelPath<'a>> {
    Some(ModelPath {
        name: unescape(name)?,
        version: unescape(version)?,
    })
}

/// Decodes percent-encoding; `None` if it is invalid or not UTF-8.
fn unescape(piece: &str) -> Option<Cow<'_, str>> {
    if !piece.contains('%') {
        return Some(Cow::Borrowed(piece));
    }
    let mut bytes = Vec::with_capacity(piece.len());
    let mut rest = piece.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests;
