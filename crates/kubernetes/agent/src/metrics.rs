//! What the agent counts, for the text that params serves: the agent itself has no listener.

use std::sync::atomic::{AtomicU64, Ordering};

use albacore_cluster::Metrics;
use albacore_os::{HostRoot, Pid, read_stat};
use albacore_placer::Figures;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::facts::Facts;
use crate::journal::BIRTH_ENDS_MS;

/// A bucket of birth-to-verified times.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Within {
    /// Upper end in milliseconds, or `more`.
    pub(crate) within_ms: String,
}

/// A condition of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Ill {
    pub(crate) reason: &'static str,
}

/// The counts. Clones are the same counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pods: Gauge,
    threads_planned: Gauge,
    threads_verified: Gauge,
    is_enforcing: Gauge,
    drifts: Counter,
    births: Family<Within, Counter>,
    ills: Family<Ill, Gauge>,
    pins: Counter,
    respawns: Counter,
    solves: Counter,
    cpu_micros: Counter,
}

fn set(counter: &Counter, value: u64) {
    let inner: &AtomicU64 = counter.inner();
    // A placer that began anew counts from 0: the sum stays.
    inner.fetch_max(value, Ordering::Relaxed);
}

fn size(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Counts {
    /// Counts that `metrics` shows.
    pub(crate) fn registered(metrics: &Metrics) -> Self {
        let counts = Self::default();
        // Destructured, so that no metric is counted and never shown (L9).
        let Self {
            pods,
            threads_planned,
            threads_verified,
            is_enforcing,
            drifts,
            births,
            ills,
            pins,
            respawns,
            solves,
            cpu_micros,
        } = counts.clone();
        metrics.register(|registry| {
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
                "Masks that were as planned and then were not",
                drifts,
            );
            counter("pins", "Calls of sched_setaffinity", pins);
            counter("respawns", "Workers that replaced another", respawns);
            counter("solves", "Mappings solved", solves);
            counter("cpu_micros", "Cpu time that the agent used", cpu_micros);
            let help = "Threads by the time from their birth to their verified mask";
            registry.register("agent_births", help, births);
            let help = "1 while the node is held back by this";
            registry.register("agent_degraded", help, ills);
        });
        counts
    }

    /// What the placer counts.
    pub(crate) fn note(&self, figures: &Figures) {
        set(&self.pins, figures.setaffinity_calls);
        set(&self.respawns, figures.respawns);
        set(&self.solves, figures.solves);
    }

    /// What the report says.
    pub(crate) fn note_facts(&self, facts: &Facts) {
        let counts: Vec<_> = facts.pods.iter().map(|pod| pod.counts()).collect();
        self.pods.set(size(counts.len()));
        self.threads_planned
            .set(size(counts.iter().map(|c| c.planned).sum()));
        self.threads_verified
            .set(size(counts.iter().map(|c| c.verified).sum()));
        self.is_enforcing
            .set(i64::from(facts.health.idle.is_none()));
        set(&self.drifts, facts.drifts);
        for (index, count) in facts.births.iter().enumerate() {
            let within_ms = BIRTH_ENDS_MS
                .get(index)
                .map_or_else(|| "more".to_owned(), ToString::to_string);
            set(&self.births.get_or_create(&Within { within_ms }), *count);
        }
        self.ills.clear();
        for (reason, _) in &facts.health.ills {
            self.ills.get_or_create(&Ill { reason }).set(1);
        }
    }

    /// Cpu time of this process so far.
    pub(crate) fn note_cpu(&self) {
        let own = Pid(std::process::id() as i32);
        if let Ok(stat) = read_stat(&HostRoot::live(), own) {
            set(&self.cpu_micros, stat.cpu_ticks * MICROS_PER_TICK);
        }
    }
}

/// The kernel counts cpu time for user space in hundredths of a second, on every machine.
const MICROS_PER_TICK: u64 = 10_000;
