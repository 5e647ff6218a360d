//! Fetches an http or https URL.

use std::path::Path;
use std::time::Duration;

use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Error};

use crate::error::StorageErrorKind;
use crate::limits::{
    CONNECT_MAX, REDIRECTS_MAX, RESPONSE_MAX, ROOTS_BYTES_MAX, SILENCE_MAX, TRANSFER_MAX,
};
use crate::receive::{Fetched, Transfer, receive};

/// Creates an HTTP client with the bounds of `limits.rs` that trusts `roots`, or Mozilla's roots.
pub(crate) fn agent(roots: Option<RootCerts>) -> Agent {
    let roots = roots.unwrap_or(RootCerts::WebPki);
    let config = Agent::config_builder()
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        // By default ureq uses the proxy of the environment.
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
    Agent::new_with_config(config)
}

/// Reads the CA certificates of a PEM file.
pub(crate) fn read_roots(path: &Path) -> Result<RootCerts, StorageErrorKind> {
    let read = std::fs::metadata(path).and_then(|found| match found.len() {
        0..=ROOTS_BYTES_MAX => std::fs::read(path),
        _ => Err(std::io::Error::other("it is larger than 4 MiB")),
    });
    let bytes = read.map_err(|error| StorageErrorKind::Roots(error.to_string()))?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(StorageErrorKind::Roots(error.to_string())),
        }
    }
    if found.is_empty() {
        return Err(StorageErrorKind::Roots("it has no certificate".to_owned()));
    }
    Ok(RootCerts::from(found))
}

pub(crate) fn fetch(
    agent: &Agent,
    url: &str,
    transfer: Transfer<'_>,
) -> Result<Fetched, StorageErrorKind> {
    let is_https = url.starts_with("https://");
    let request = agent.get(url).config().https_only(is_https).build();
    let response = request.call().map_err(explain)?;
    let status = response.status().as_u16();
    if status != 200 {
        let remedy = remedy(status);
        return Err(StorageErrorKind::Status { status, remedy });
    }
    let body = response.into_body();
    let announced = body.content_length();
    let failed = |error| explain(Error::from(error));
    receive(body.into_reader(), transfer, announced, failed)
}

fn remedy(status: u16) -> &'static str {
    match status {
        401 | 403 => "the file is not public; name a URL that needs no credentials",
        404 | 410 => "file not found; correct the URL",
        200..=299 => "only 200 with the whole file is accepted",
        300..=399 => "the redirect cannot be followed; correct the URL",
        408 | 425 | 429 | 500..=599 => "the server has a problem; it is retried",
        _ => "correct the URL",
    }
}

pub(crate) fn explain(error: Error) -> StorageErrorKind {
    match error {
        Error::TooManyRedirects => StorageErrorKind::Redirects,
        Error::RequireHttpsOnly(_) => StorageErrorKind::Downgrade,
        Error::Timeout(timeout) => StorageErrorKind::Slow(waited_for(timeout)),
        Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            StorageErrorKind::Slow(seconds("a piece of the file", SILENCE_MAX))
        }
        Error::Io(error) => StorageErrorKind::Network(error.to_string()),
        error => StorageErrorKind::Network(error.to_string()),
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

pub(crate) fn seconds(what: &str, most: Duration) -> String {
    format!("{what} within {} s", most.as_secs())
}
