//! The agent's metrics. The agent has no listener: albacore-params serves the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use albacore_cluster::MetricsRegistry;
use albacore_os::{HostRoot, Pid, read_stat};
use albacore_placer::PlacerCounters;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::facts::{NodeFacts, Reason};
use crate::placer_stats::SPAWN_BUCKETS_MS;

/// Label of a bucket of spawn-to-verified times.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SpawnLabel {
    /// Upper bound in milliseconds, or `more`.
    pub(crate) within_ms: String,
}

/// Label of a cause of degradation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DegradedLabel {
    pub(crate) reason: &'static str,
}

/// Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentMetrics {
    pods: Gauge,
    threads_planned: Gauge,
    threads_verified: Gauge,
    is_enforcing: Gauge,
    drifts: Counter,
    spawns: Family<SpawnLabel, Counter>,
    degraded: Family<DegradedLabel, Gauge>,
    pins: Counter,
    respawns: Counter,
    solves: Counter,
    cpu_micros: Counter,
}

fn set(counter: &Counter, value: u64) {
    let inner: &AtomicU64 = counter.inner();
    // A restarted placer counts from 0, but the counter must not decrease.
    inner.fetch_max(value, Ordering::Relaxed);
}

fn size(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl AgentMetrics {
    pub(crate) fn registered(registry: &MetricsRegistry) -> Self {
        let metrics = Self::default();
        // Destructured, so that a metric cannot be counted without being registered (L9).
        let Self {
            pods,
            threads_planned,
            threads_verified,
            is_enforcing,
            drifts,
            spawns,
            degraded,
            pins,
            respawns,
            solves,
            cpu_micros,
        } = metrics.clone();
        registry.register(|registry| {
            let mut gauge = |name: &str, help: &str, gauge: Gauge| {
                registry.register(format!("agent_{name}"), help, gauge);
            };
            gauge("pods", "Pods of this node that opted in", pods);
            gauge(
                "threads_planned",
                "Threads with a planned cpu",
                threads_planned,
            );
            gauge(
                "threads_verified",
                "Threads read back on their planned cpu",
                threads_verified,
            );
            gauge("enforcing", "1 while masks are written", is_enforcing);
            let mut counter = |name: &str, help: &str, counter: Counter| {
                registry.register(format!("agent_{name}"), help, counter);
            };
            counter(
                "drifts",
                "Masks that were verified and later found changed",
                drifts,
            );
            counter("pins", "Calls of sched_setaffinity", pins);
            counter(
                "respawns",
                "Worker processes that replaced another one",
                respawns,
            );
            counter("solves", "Mappings solved", solves);
            counter(
                "cpu_micros",
                "Cpu time used by the agent, in microseconds",
                cpu_micros,
            );
            let help = "Threads by the time from their start to their verified mask";
            registry.register("agent_births", help, spawns);
            let help = "1 while the node is degraded for this reason";
            registry.register("agent_degraded", help, degraded);
        });
        metrics
    }

    pub(crate) fn set_placer(&self, figures: &PlacerCounters) {
        set(&self.pins, figures.setaffinity_calls);
        set(&self.respawns, figures.respawns);
        set(&self.solves, figures.solves);
    }

    pub(crate) fn set_facts(&self, facts: &NodeFacts) {
        let counts: Vec<_> = facts.pods.iter().map(|pod| pod.counts()).collect();
        self.pods.set(size(counts.len()));
        self.threads_planned
            .set(size(counts.iter().map(|c| c.planned).sum()));
        self.threads_verified
            .set(size(counts.iter().map(|c| c.verified).sum()));
        self.is_enforcing
            .set(i64::from(facts.health.not_enforcing.is_none()));
        set(&self.drifts, facts.drifts);
        for (index, count) in facts.spawns.iter().enumerate() {
            let within_ms = SPAWN_BUCKETS_MS
                .get(index)
                .map_or_else(|| "more".to_owned(), ToString::to_string);
            set(
                &self.spawns.get_or_create(&SpawnLabel { within_ms }),
                *count,
            );
        }
        self.degraded.clear();
        for Reason { code: reason, .. } in &facts.health.degraded {
            self.degraded
                .get_or_create(&DegradedLabel { reason })
                .set(1);
        }
    }

    /// Sets the CPU time that this process has used so far.
    pub(crate) fn set_cpu_time(&self) {
        let own = Pid(std::process::id() as i32);
        if let Ok(stat) = read_stat(&HostRoot::live(), own) {
            set(&self.cpu_micros, stat.cpu_ticks * MICROS_PER_TICK);
        }
    }
}

/// USER_HZ is 100 on every machine: procfs shows CPU time in hundredths of a second.
const MICROS_PER_TICK: u64 = 10_000;
