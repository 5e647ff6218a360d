//! The HTTP listener of a program: readiness and metrics.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use albacore_program::{ListenError, Pages, listen, serve_pages};

use crate::{MetricsRegistry, ReadinessGates, Shutdown};

/// Serves on `address`, the value of `--listen`, until the program stops; returns the bound address
/// (which differs if the port was 0).
///
/// `/livez` answers 200 as long as the program runs, `/readyz` 200 when every gate is passed and
/// 503 before, with all gates by name; `/metrics` is OpenMetrics or Prometheus text, as the scraper
/// accepts.
///
/// # Errors
/// The address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    gates: &ReadinessGates,
    metrics: &MetricsRegistry,
    shutdown: &Shutdown,
) -> Result<SocketAddr, ListenError> {
    let argument = "--listen";
    let listener = listen(argument, address).await?;
    let bound = listener.local_addr().map_err(|source| ListenError {
        argument,
        address,
        source,
    })?;
    let pages = Arc::new(StatusPages {
        gates: gates.clone(),
        metrics: metrics.clone(),
    });
    shutdown.spawn("listener", serve_pages(listener, pages));
    Ok(bound)
}

struct StatusPages {
    gates: ReadinessGates,
    metrics: MetricsRegistry,
}

impl Pages for StatusPages {
    fn readiness(&self) -> (bool, String) {
        (self.gates.is_ready(), self.gates.text())
    }

    fn metrics(&self) -> Result<String, fmt::Error> {
        self.metrics.text()
    }
}
