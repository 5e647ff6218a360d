//! The HTTP server of a program for health and metrics.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use albacore_program::{ListenError, MonitoringEndpoints, listen, serve_monitoring};

use crate::{MetricsRegistry, ReadinessGates, Shutdown};

/// Serves on `address`, the value of `--listen`, until shutdown; returns the bound address, which
/// differs if the port was 0.
///
/// `/livez` responds with 200 while the program runs; `/readyz` responds with 200 when every gate
/// has passed and with 503 before, and lists all gates by name; `/metrics` returns OpenMetrics or
/// Prometheus text, depending on what the scraper accepts.
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
    let endpoints = Arc::new(ProgramEndpoints {
        gates: gates.clone(),
        metrics: metrics.clone(),
    });
    shutdown.spawn("listener", serve_monitoring(listener, endpoints));
    Ok(bound)
}

struct ProgramEndpoints {
    gates: ReadinessGates,
    metrics: MetricsRegistry,
}

impl MonitoringEndpoints for ProgramEndpoints {
    fn readiness(&self) -> (bool, String) {
        (self.gates.is_ready(), self.gates.text())
    }

    fn metrics(&self) -> Result<String, fmt::Error> {
        self.metrics.text()
    }
}
