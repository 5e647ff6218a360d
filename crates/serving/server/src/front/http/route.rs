//! Paths and methods.

use std::borrow::Cow;

use hyper::Method;

use super::super::ask::brief;
use super::super::refused::{Cause, Refused};

/// A call that exists.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// `GET /v2`
    Server,
    /// `GET /v2/health/live`
    Live,
    /// `GET /v2/health/ready`
    Ready,
    /// `GET /v2/models/{name}[/versions/{version}]`
    Model(Named<'a>),
    /// `GET /v2/models/{name}[/versions/{version}]/ready`
    ModelReady(Named<'a>),
    /// `POST /v2/models/{name}[/versions/{version}]/infer`
    Infer(Named<'a>),
    /// `GET /v2/models/{name}[/versions/{version}]/config`
    Config(Named<'a>),
    /// `GET /v2/models[/{name}[/versions/{version}]]/stats`; an empty name is all models.
    Stats(Named<'a>),
    /// `POST /v2/repository/index`; `GET` is taken, too.
    Index,
    /// `POST /v2/repository/models/{name}/load` and `/unload`, which are refused.
    LoadOrUnload,
    /// `GET /metrics`
    Metrics,
    /// `GET /albacore/v1/state`
    State,
}

impl Route<'_> {
    /// Whether the answer is out of date at once, so that no cache may keep it.
    pub(super) fn is_momentary(&self) -> bool {
        match self {
            Self::Live | Self::Ready | Self::ModelReady(_) => true,
            Self::Metrics | Self::State | Self::Stats(_) | Self::Index => true,
            Self::Server | Self::Model(_) | Self::Config(_) => false,
            Self::Infer(_) | Self::LoadOrUnload => false,
        }
    }
}

/// A model as a path names it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named<'a> {
    pub(super) name: Cow<'a, str>,
    /// Its version, unescaped; empty for any.
    pub(super) version: Cow<'a, str>,
}

/// Why there is no route.
#[derive(Debug)]
pub(super) struct NoRoute {
    pub(super) refused: Refused,
    /// The methods that the path has; empty when the path does not exist.
    pub(super) allow: &'static str,
}

/// Finds the call. `HEAD` counts as `GET`.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, NoRoute> {
    let route = path_only(path).ok_or_else(|| NoRoute {
        refused: Refused::new(
            Cause::NotFound,
            format!(
                "{:?} is not a path of the Open Inference Protocol v2",
                brief(path)
            ),
        ),
        allow: "",
    })?;
    let allow = match route {
        Route::Infer(_) | Route::LoadOrUnload => "POST",
        Route::Index => "POST, GET",
        _ => "GET, HEAD",
    };
    if allow.split(", ").any(|allowed| allowed == method.as_str()) {
        return Ok(route);
    }
    let path = brief(path);
    let message = format!("{path:?} takes {allow}, not {:?}", brief(method.as_str()));
    Err(NoRoute {
        refused: Refused::new(Cause::Method, message),
        allow,
    })
}

fn path_only(path: &str) -> Option<Route<'_>> {
    if path == "/metrics" {
        return Some(Route::Metrics);
    }
    if path == "/albacore/v1/state" {
        return Some(Route::State);
    }
    let rest = path.strip_prefix("/v2")?;
    let rest = match rest.strip_prefix('/') {
        Some(rest) => rest.strip_suffix('/').unwrap_or(rest),
        None if rest.is_empty() => rest,
        None => return None,
    };
    // bound: split at most into seven pieces; the longest path has five
    let pieces: Vec<&str> = rest.splitn(7, '/').collect();
    Some(match pieces[..] {
        [""] => Route::Server,
        ["health", "live"] => Route::Live,
        ["health", "ready"] => Route::Ready,
        ["models", "stats"] => Route::Stats(named("", "")?),
        ["repository", "index"] => Route::Index,
        ["repository", "models", _, "load" | "unload"] => Route::LoadOrUnload,
        ["models", name] => Route::Model(named(name, "")?),
        ["models", name, "ready"] => Route::ModelReady(named(name, "")?),
        ["models", name, "infer"] => Route::Infer(named(name, "")?),
        ["models", name, "config"] => Route::Config(named(name, "")?),
        ["models", name, "stats"] => Route::Stats(named(name, "")?),
        ["models", name, "versions", version, "config"] if !version.is_empty() => {
            Route::Config(named(name, version)?)
        }
        ["models", name, "versions", version, "stats"] if !version.is_empty() => {
            Route::Stats(named(name, version)?)
        }
        ["models", name, "versions", version] if !version.is_empty() => {
            Route::Model(named(name, version)?)
        }
        ["models", name, "versions", version, "ready"] if !version.is_empty() => {
            Route::ModelReady(named(name, version)?)
        }
        ["models", name, "versions", version, "infer"] if !version.is_empty() => {
            Route::Infer(named(name, version)?)
        }
        _ => return None,
    })
}

fn named<'a>(name: &'a str, version: &'a str) -> Option<Named<'a>> {
    Some(Named {
        name: unescape(name)?,
        version: unescape(version)?,
    })
}

/// Undoes percent-encoding; `None` if it is broken or not UTF-8.
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
