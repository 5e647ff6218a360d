//! Limits of the listener.

use std::time::Duration;

/// Maximum concurrent connections of probes and scrapers: kubelet, a few Prometheus servers and a
/// human.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Maximum lifetime of a connection of a probe or scraper.
pub(crate) const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);

/// Backlog of the listener; the kernel caps it at `net.core.somaxconn` (4,096 by default). If the
/// backlog is full, the kernel drops the SYN and the client retransmits only after a second, which
/// is why the backlog is long.
pub(crate) const WAITING_CONNECTIONS_MAX: u32 = 4_096;

/// Maximum time to receive the head of a request.
pub(crate) const HEAD_TIME_MAX: Duration = Duration::from_secs(5);

/// Pause after `accept` failed (no file descriptor left), so that other connections can close.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
