//! Fetches an http or https URL.

use std::path::Path;
use std::time::Duration;

use albacore_settings::Digest;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Error};

use crate::error::StorageError;
use crate::limits::{
    CONNECT_MAX, REDIRECTS_MAX, RESPONSE_MAX, ROOTS_BYTES_MAX, SILENCE_MAX, TRANSFER_MAX,
};
use crate::receive::{Transfer, receive};

/// An HTTP client with the bounds of `limits.rs` that trusts `roots` (a PEM file) or Mozilla's
/// roots.
pub(crate) fn agent(roots: Option<&Path>) -> Result<Agent, StorageError> {
    let roots = match roots {
        Some(path) => RootCerts::from(read_roots(path)?),
        None => RootCerts::WebPki,
    };
    let config = Agent::config_builder()
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        // Otherwise ureq uses the proxy of the environment.
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(REDIRECTS_MAX)
        .timeout_connect(Some(CONNECT_MAX))
        .timeout_recv_response(Some(RESPONSE_MAX))
        .timeout_per_read(Some(SILENCE_MAX))
        .timeout_global(Some(TRANSFER_MAX))
        .user_agent(concat!("albacore-server/", env!("CARGO_PKG_VERSION")))
        .max_idle_connections(0)
        .build();
    Ok(Agent::new_with_config(config))
}

fn read_roots(path: &Path) -> Result<Vec<ureq::tls::Certificate<'static>>, StorageError> {
    let roots = |problem: String| StorageError::Roots {
        path: path.display().to_string(),
        problem,
    };
    let read = std::fs::metadata(path).and_then(|found| match found.len() {
        0..=ROOTS_BYTES_MAX => std::fs::read(path),
        _ => Err(std::io::Error::other("it is larger than 4 MiB")),
    });
    let bytes = read.map_err(|error| roots(error.to_string()))?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(roots(error.to_string())),
        }
    }
    if found.is_empty() {
        return Err(roots("it has no certificate".to_owned()));
    }
    Ok(found)
}

pub(crate) fn fetch(
    agent: &Agent,
    url: &str,
    transfer: Transfer<'_>,
) -> Result<(Vec<u8>, Digest), StorageError> {
    let place = transfer.place.to_owned();
    let is_https = url.starts_with("https://");
    let request = agent.get(url).config().https_only(is_https).build();
    let response = request.call().map_err(|error| explain(&place, error))?;
    let status = response.status().as_u16();
    if status != 200 {
        let remedy = remedy(status);
        return Err(StorageError::Status {
            place,
            status,
            remedy,
        });
    }
    let body = response.into_body();
    let announced = body.content_length();
    receive(
        body.into_reader(),
        &Transfer {
            announced,
            ..transfer
        },
        |error| explain(&place, Error::from(error)),
    )
}

fn remedy(status: u16) -> &'static str {
    match status {
        401 | 403 => "the file is not public; name a URL that needs no credentials",
        404 | 410 => "there is no such file; correct the URL",
        200..=299 => "only 200 with the whole file is taken",
        300..=399 => "the redirect leads nowhere; correct the URL",
        408 | 425 | 429 | 500..=599 => "the server has a problem; it is tried again",
        _ => "correct the URL",
    }
}

fn explain(place: &str, error: Error) -> StorageError {
    let place = place.to_owned();
    match error {
        Error::TooManyRedirects => StorageError::Redirects {
            place,
            redirects_max: REDIRECTS_MAX,
        },
        Error::RequireHttpsOnly(_) => StorageError::Downgrade { place },
        Error::Timeout(timeout) => {
            let what = waited_for(timeout);
            StorageError::Slow { place, what }
        }
        Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            let what = seconds("a piece of the file", SILENCE_MAX);
            StorageError::Slow { place, what }
        }
        Error::Io(error) => StorageError::Network {
            place,
            problem: error.to_string(),
        },
        error => StorageError::Network {
            place,
            problem: error.to_string(),
        },
    }
}

fn waited_for(timeout: ureq::Timeout) -> String {
    use ureq::Timeout;
    match timeout {
        Timeout::Connect | Timeout::Resolve => seconds("a connection", CONNECT_MAX),
        Timeout::RecvResponse => seconds("the head of the response", RESPONSE_MAX),
        Timeout::Global => seconds("the whole file", TRANSFER_MAX),
        _ => seconds("a piece of the file", SILENCE_MAX),
    }
}

fn seconds(what: &str, most: Duration) -> String {
    format!("{what} within {} s", most.as_secs())
}
