//! Counts how often clients ran into each bound (`albacore_bounds_reached_total`), and the open
//! connections.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// A bound that a client can run into, or another reason why its connection ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Turned away: so many connections are open and all are being served.
    Connections,
    /// Closed to make room for others.
    CrowdedOut,
    FirstBytesTime,
    /// Did not end the head of a request.
    HeadTime,
    /// The head was too large.
    HeadBytes,
    /// What came was no HTTP.
    NotHttp,
    /// Idle for too long.
    IdleTime,
    /// The other end does not answer any more.
    Keepalive,
    /// Most of its calls given up.
    Resets,
    /// A flood of frames of HTTP/2: calls reset before they were looked at, headers without end.
    Flood,
    /// Broke off in the middle of a request or of a reply.
    BrokenOff,
    /// A reply was not read.
    ReplyTime,
    /// Replies of all clients were not read.
    RepliesBytes,
    /// More results than one reply may have.
    ReplyBytes,
    /// A body stalled, or was too slow.
    BodyTime,
    /// A body was too large, before or after unpacking.
    BodyBytes,
    /// Bodies of all clients were too much.
    BodiesBytes,
}

impl Limit {
    const ALL: [Self; 17] = [
        Self::Connections,
        Self::CrowdedOut,
        Self::FirstBytesTime,
        Self::HeadTime,
        Self::HeadBytes,
        Self::NotHttp,
        Self::IdleTime,
        Self::Keepalive,
        Self::Resets,
        Self::Flood,
        Self::BrokenOff,
        Self::ReplyTime,
        Self::RepliesBytes,
        Self::ReplyBytes,
        Self::BodyTime,
        Self::BodyBytes,
        Self::BodiesBytes,
    ];

    /// The label in metrics.
    const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::CrowdedOut => "crowded_out",
            Self::FirstBytesTime => "first_bytes_time",
            Self::HeadTime => "head_time",
            Self::HeadBytes => "head_bytes",
            Self::NotHttp => "not_http",
            Self::IdleTime => "idle_time",
            Self::Keepalive => "keepalive",
            Self::Resets => "resets",
            Self::Flood => "flood",
            Self::BrokenOff => "broken_off",
            Self::ReplyTime => "reply_time",
            Self::RepliesBytes => "replies_bytes",
            Self::ReplyBytes => "reply_bytes",
            Self::BodyTime => "body_time",
            Self::BodyBytes => "body_bytes",
            Self::BodiesBytes => "bodies_bytes",
        }
    }
}

/// The counters of all ports; a clone counts into the same.
#[derive(Clone, Debug, Default)]
pub struct LimitMetrics(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    reached: [AtomicU64; Limit::ALL.len()],
    open: AtomicU64,
}

impl LimitMetrics {
    /// One client ran into `bound`.
    pub(crate) fn count(&self, bound: Limit) {
        if let Some(count) = self.0.reached.get(bound as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection was let in; it counts until what is returned is dropped.
    pub(crate) fn opened(&self) -> Open {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(&self.0))
    }
}

/// A connection that counts as open.
#[derive(Debug)]
pub(crate) struct Open(Arc<Counts>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Collector for LimitMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let open = ConstGauge::new(self.0.open.load(Ordering::Relaxed));
        let help = "Open connections of both ports";
        open.encode(encoder.encode_descriptor("connections", help, None, MetricType::Gauge)?)?;
        let help = "Clients that ran into a bound of the front, or broke off, by the bound";
        let mut family =
            encoder.encode_descriptor("bounds_reached", help, None, MetricType::Counter)?;
        for bound in Limit::ALL {
            let reached = self.0.reached.get(bound as usize);
            let count = reached.map_or(0, |count| count.load(Ordering::Relaxed));
            let labels = [("bound", bound.name())];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_has_a_place_and_a_name_of_its_own() {
        for (place, bound) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(bound as usize, place);
        }
        let names: std::collections::BTreeSet<_> = Limit::ALL.map(Limit::name).into();
        assert_eq!(names.len(), Limit::ALL.len());
    }
}
