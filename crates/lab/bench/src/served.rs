//! Reads the totals that a server reports for all its clients.

use std::net::{SocketAddr, ToSocketAddrs as _};

use albacore_load::get;
use albacore_statistics::RequestCounters;

use crate::error::BenchError;

/// Address of a server that exports `/metrics`.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    url: String,
    address: SocketAddr,
}

impl ServerAddress {
    /// # Errors
    /// `url` is not `http://HOST:PORT`, or there is no such host.
    pub fn parse(url: &str) -> Result<Self, BenchError> {
        let place = url.strip_prefix("http://").unwrap_or_default();
        let found = place.trim_end_matches('/').to_socket_addrs().ok();
        let address = found.and_then(|mut found| found.next());
        let address = address.ok_or_else(|| {
            BenchError::Usage(format!("{url}: expected http://HOST:PORT of a server"))
        })?;
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            address,
        })
    }

    /// # Errors
    /// The server does not answer, or is not an Albacore server.
    pub fn request_counters(&self) -> Result<RequestCounters, BenchError> {
        let url = format!("{}/metrics", self.url);
        let asked = get(self.address, "/metrics");
        let (status, body) = asked.map_err(|source| BenchError::Fetch {
            url: url.clone(),
            source,
        })?;
        let text = String::from_utf8(body).ok().filter(|_| status == 200);
        let counters = text.and_then(|text| RequestCounters::parse(&text));
        counters.ok_or_else(|| {
            let what = "it reports no request metrics of an Albacore server";
            BenchError::Failed(format!("{url}: {what} (status {status})"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_host_and_port() {
        ServerAddress::parse("http://127.0.0.1:8080/").unwrap();
        for bad in ["127.0.0.1:8080", "http://127.0.0.1", "grpc://127.0.0.1:1"] {
            let error = ServerAddress::parse(bad).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
