//! The listener of a program of a cluster: its gates and its metrics.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use albacore_program::{ListenError, Pages, listen, serve_pages};

use crate::{Gates, Metrics, Shutdown};

/// Answers on `address`, which `--listen` gave, until the program stops; returns the address in use
/// (a port that was 0 is known then).
///
/// `/livez` says 200 as long as the program runs, `/readyz` 200 when every gate is passed and 503
/// before, with all gates by name; `/metrics` is OpenMetrics or Prometheus text, as the scraper
/// accepts.
///
/// # Errors
/// The address cannot be used.
pub async fn serve(
    address: SocketAddr,
    gates: &Gates,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Result<SocketAddr, ListenError> {
    let argument = "--listen";
    let listener = listen(argument, address).await?;
    let bound = listener.local_addr().map_err(|source| ListenError {
        argument,
        address,
        source,
    })?;
    let site = Arc::new(Site {
        gates: gates.clone(),
        metrics: metrics.clone(),
    });
    shutdown.spawn("listener", serve_pages(listener, site));
    Ok(bound)
}

struct Site {
    gates: Gates,
    metrics: Metrics,
}

impl Pages for Site {
    fn readiness(&self) -> (bool, String) {
        (self.gates.is_ready(), self.gates.text())
    }

    fn metrics(&self) -> Result<String, fmt::Error> {
        self.metrics.text()
    }
}
