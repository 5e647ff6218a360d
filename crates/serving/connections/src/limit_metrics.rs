//! Counts how often clients reached each limit (`albacore_bounds_reached_total`), and the open
//! connections.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// A limit that a client reached, or another reason for closing its connection early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Refused: the maximum number of connections is open, and all are serving requests.
    Connections,
    /// Evicted to make room for other connections.
    Evicted,
    FirstBytesTime,
    /// The request head was not received in time.
    HeadTime,
    /// The request head was too large.
    HeadBytes,
    /// The bytes were not HTTP.
    NotHttp,
    /// Idle for too long.
    IdleTime,
    /// The peer did not acknowledge a keepalive ping.
    Keepalive,
    /// The client abandoned most of its calls.
    Resets,
    /// A flood of HTTP/2 frames: calls reset before they were accepted, endless headers.
    Flood,
    /// The client closed the connection during a request or a reply.
    Aborted,
    /// The client did not read a reply in time.
    ReplyTime,
    /// Too many bytes of replies were unsent, over all clients.
    RepliesBytes,
    /// The reply would be too large.
    ReplyBytes,
    /// A body stalled or was too slow.
    BodyTime,
    /// A body was too large, before or after decompression.
    BodyBytes,
    /// Too many bytes of bodies were in memory, over all clients.
    BodiesBytes,
}

/// The limits in the order of their declaration, with their labels in metrics.
const LIMITS: [(Limit, &str); 17] = [
    (Limit::Connections, "connections"),
    (Limit::Evicted, "crowded_out"),
    (Limit::FirstBytesTime, "first_bytes_time"),
    (Limit::HeadTime, "head_time"),
    (Limit::HeadBytes, "head_bytes"),
    (Limit::NotHttp, "not_http"),
    (Limit::IdleTime, "idle_time"),
    (Limit::Keepalive, "keepalive"),
    (Limit::Resets, "resets"),
    (Limit::Flood, "flood"),
    (Limit::Aborted, "broken_off"),
    (Limit::ReplyTime, "reply_time"),
    (Limit::RepliesBytes, "replies_bytes"),
    (Limit::ReplyBytes, "reply_bytes"),
    (Limit::BodyTime, "body_time"),
    (Limit::BodyBytes, "body_bytes"),
    (Limit::BodiesBytes, "bodies_bytes"),
];

/// The counters of all ports; clones share them.
#[derive(Clone, Debug, Default)]
pub struct LimitMetrics(Arc<LimitCounts>);

#[derive(Debug, Default)]
struct LimitCounts {
    reached: [AtomicU64; LIMITS.len()],
    open: AtomicU64,
}

impl LimitMetrics {
    pub(crate) fn count(&self, limit: Limit) {
        if let Some(count) = self.0.reached.get(limit as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a connection as open until the returned guard is dropped.
    pub(crate) fn connection_opened(&self) -> OpenConnection {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(&self.0))
    }
}

/// Guard of an open connection.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<LimitCounts>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Collector for LimitMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let open = ConstGauge::new(self.0.open.load(Ordering::Relaxed));
        let help = "Open connections of both ports";
        open.encode(encoder.encode_descriptor("connections", help, None, MetricType::Gauge)?)?;
        let help = "Clients that reached a bound of the front, or disconnected early, by bound";
        let mut family =
            encoder.encode_descriptor("bounds_reached", help, None, MetricType::Counter)?;
        for ((_, name), count) in LIMITS.iter().zip(&self.0.reached) {
            let count = ConstCounter::new(count.load(Ordering::Relaxed));
            count.encode(family.encode_family(&[("bound", *name)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_distinct_indices_and_names() {
        for (index, (limit, _)) in LIMITS.into_iter().enumerate() {
            assert_eq!(limit as usize, index);
        }
        let names: std::collections::BTreeSet<_> = LIMITS.map(|(_, name)| name).into();
        assert_eq!(names.len(), LIMITS.len());
    }
}
