//! Bounds of the listener.

use std::time::Duration;

/// Connections of probes and scrapers at once: kubelet, a few Prometheus servers and a human.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Longest life of a connection of a probe or scraper.
pub(crate) const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);

/// Connections that wait to be accepted; the kernel takes at most `net.core.somaxconn` (4,096 by
/// default). The next one is not refused: its client asks again after a second, which is why many
/// are let wait.
pub(crate) const WAITING_CONNECTIONS_MAX: u32 = 4_096;

/// How long the head of a request may take to arrive.
pub(crate) const HEAD_TIME_MAX: Duration = Duration::from_secs(5);

/// Pause after the kernel refused a connection (no file descriptor left): time for others to close.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
