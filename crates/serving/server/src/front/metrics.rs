//! `/metrics`: the counters of the front and a snapshot of the engine as OpenMetrics text, which
//! [`albacore_program::MetricsFormat`] converts to the format that the scraper accepts.
//!
//! Label values are bounded: served models (unknown ones count as empty), kinds, protocols, codes.

use std::fmt::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::statistics::{AnsweredCall, Statistics};
use crate::effective_config::EffectiveConfig;
use albacore_batching::deadlines::CostEstimate;
use albacore_connections::LimitMetrics;
use albacore_engine::{
    DispatchReason, Engine, Histogram, KindSet, KindStats, Load, ModelStats, Sharing, Stats,
    Timing, WorkerStats, kind_name,
};

/// Buckets of a request's duration, seconds: fine where a single row lands, coarse up to the
/// longest SHAP batches.
const BOUNDS: [f64; 15] = [
    50e-6, 100e-6, 150e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 1.0,
    10.0,
];

/// Labels of the counter of finished requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    model: String,
    kind: &'static str,
    protocol: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    model: String,
    kind: &'static str,
    protocol: &'static str,
}

type Durations = Family<
    DurationLabels,
    prometheus_client::metrics::histogram::Histogram,
    fn() -> ClassHistogram,
>;
type ClassHistogram = prometheus_client::metrics::histogram::Histogram;

/// What the metrics need of an infer call; filled while the call proceeds.
pub(super) struct InferCall {
    pub(super) arrival: Instant,
    /// Name of the model; empty if there is no such model.
    pub(super) model: String,
    /// The requested outputs; empty if the request could not be parsed.
    pub(super) kinds: KindSet,
    /// `None` if the call was refused or failed.
    answered: Option<AnsweredCall>,
}

impl InferCall {
    /// A call whose first byte came at `arrival`.
    pub(super) fn new(arrival: Instant) -> Self {
        Self {
            arrival,
            model: String::new(),
            kinds: KindSet::default(),
            answered: None,
        }
    }

    /// Records that results are available; `parsing` is the time from the end of the body to rows
    /// in shared memory.
    pub(super) fn answered(&mut self, rows: usize, parsing: Duration, timing: Timing) {
        self.answered = Some(AnsweredCall {
            rows,
            parsing,
            timing,
            computed_at: Instant::now(),
        });
    }
}

/// All metrics of this server.
pub(super) struct Metrics {
    registry: Registry,
    finished: Family<RequestLabels, Counter>,
    durations: Durations,
    /// For the statistics extension.
    pub(super) statistics: Statistics,
}

impl Metrics {
    pub(super) fn new(
        engine: Arc<Engine>,
        config: Arc<EffectiveConfig>,
        limit_metrics: LimitMetrics,
    ) -> Self {
        let mut registry = Registry::with_prefix("albacore");
        let finished = Family::<RequestLabels, Counter>::default();
        registry.register("requests", "Finished infer calls", finished.clone());
        let durations: Durations = Family::new_with_constructor(|| ClassHistogram::new(BOUNDS));
        registry.register_with_unit(
            "request_duration",
            "From the head of an infer call to its printed reply",
            Unit::Seconds,
            durations.clone(),
        );
        registry.register_collector(Box::new(EngineCollector(engine)));
        registry.register_collector(Box::new(ParamsCollector(config)));
        registry.register_collector(Box::new(limit_metrics));
        Self {
            registry,
            finished,
            durations,
            statistics: Statistics::default(),
        }
    }

    /// Counts one infer call, whose reply is encoded. `code` is the HTTP status or gRPC code.
    pub(super) fn count(&self, call: &InferCall, protocol: &'static str, code: String) {
        let took = call.arrival.elapsed();
        let model = call.model.clone();
        if !model.is_empty() {
            self.statistics.count(&model, took, call.answered.as_ref());
        }
        let kind = costliest_kind(call.kinds);
        let class = DurationLabels {
            model: model.clone(),
            kind,
            protocol,
        };
        self.durations
            .get_or_create(&class)
            .observe(took.as_secs_f64());
        self.finished
            .get_or_create(&RequestLabels {
                model,
                kind,
                protocol,
                code,
            })
            .inc();
    }

    pub(super) fn print(&self) -> String {
        let mut text = String::new();
        // infallible: writing to a string does not fail
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

/// The costliest kind of a request, which determines its duration.
fn costliest_kind(kinds: KindSet) -> &'static str {
    kinds.costliest().map_or("none", kind_name)
}

/// Encodes the engine's snapshot at each scrape.
struct EngineCollector(Arc<Engine>);

impl std::fmt::Debug for EngineCollector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("EngineCollector")
    }
}

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let stats = self.0.stats();
        encode_server(&mut encoder, &stats)?;
        encode_load(&mut encoder, &stats.load)?;
        encode_models(&mut encoder, &stats.models)?;
        encode_kinds(&mut encoder, &stats.models)?;
        encode_batch_cost(&mut encoder, &stats.models)
    }
}

/// Encodes the state of the params stream at each scrape.
#[derive(Debug)]
struct ParamsCollector(Arc<EffectiveConfig>);

impl Collector for ParamsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let (_, Some(stream)) = self.0.current() else {
            return Ok(());
        };
        let generation = stream.generation.unwrap_or(0);
        let gauges = [
            (
                "params_connected",
                "1 while the stream of --params is open",
                i64::from(stream.is_connected),
            ),
            (
                "params_generation",
                "Generation of the told parameters in force; 0: those of the settings are",
                i64::try_from(generation).unwrap_or(i64::MAX),
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let counters = [
            (
                "params_messages_taken",
                "StreamParameters parameters put in force",
                stream.applied_total,
            ),
            (
                "params_messages_refused",
                "StreamParameters parameters that were wrong",
                stream.refused_total,
            ),
            (
                "params_streams_lost",
                "Streams of --params that ended or could not be opened",
                stream.lost_total,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

fn encode_server(encoder: &mut DescriptorEncoder<'_>, stats: &Stats) -> Result<(), Error> {
    let gauges = [
        (
            "queue_rows",
            "Rows reserved or waiting for a worker",
            stats.queue_rows,
        ),
        (
            "queue_rows_max",
            "The bound of queue_rows",
            stats.queue_rows_max,
        ),
        ("workers", "Workers configured", stats.workers),
        ("workers_ready", "Workers that are up", stats.workers_ready),
        (
            "workers_busy",
            "Workers that run a batch",
            stats.workers_busy,
        ),
        ("threads", "Compute threads of each worker", stats.threads),
        (
            "arena_used_bytes",
            "Shared memory in use",
            stats.arena_used_bytes,
        ),
        (
            "arena_bytes",
            "Shared memory that can be used",
            stats.arena_bytes,
        ),
    ];
    for (name, help, value) in gauges {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
    }
    let counters = [
        (
            "worker_hangs",
            "Workers ended because they hung",
            stats.worker_hangs_total,
        ),
        (
            "replayed_batches",
            "Batches run again after a death",
            stats.replayed_batches_total,
        ),
    ];
    for (name, help, value) in counters {
        let counter = ConstCounter::new(value);
        counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
    }
    encode_workers(encoder, stats)
}

/// Counters of each worker. Idle workers have samples, too: rates begin at zero.
fn encode_workers(encoder: &mut DescriptorEncoder<'_>, stats: &Stats) -> Result<(), Error> {
    let of = |worker: usize| stats.each_worker.get(worker).copied().unwrap_or_default();
    type Count = fn(WorkerStats) -> u64;
    let counts: [(&str, &str, Count); 2] = [
        (
            "worker_restarts",
            "Starts of a worker after a death, by worker",
            |of| of.restarts_total,
        ),
        ("worker_batches", "Batches done, by worker", |of| {
            of.batches_total
        }),
    ];
    for (name, help, count) in counts {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for worker in 0..stats.workers {
            let labels = [("worker", worker.to_string())];
            ConstCounter::new(count(of(worker))).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Time of a worker with a batch, by worker";
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor("worker_busy", help, unit, MetricType::Counter)?;
    for worker in 0..stats.workers {
        let labels = [("worker", worker.to_string())];
        let seconds = of(worker).busy_nanos_total as f64 / 1e9;
        ConstCounter::new(seconds).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// The load of the last minute.
fn encode_load(encoder: &mut DescriptorEncoder<'_>, load: &Load) -> Result<(), Error> {
    let shares = [
        (
            "load_factor",
            "Times the pods is the pods needed: 1/(1-r), r bad share; where r is 0, 1-f, f idle",
            load.factor,
        ),
        (
            "bad_rate",
            "Late, shed and failed requests of all, last minute",
            load.bad_rate,
        ),
        (
            "idle_share",
            "Idle time of workers, of all their time, last minute",
            load.idle_share,
        ),
        (
            "goodput_per_second",
            "Requests answered in time, per second, last minute",
            load.goodput_per_second,
        ),
    ];
    for (name, help, value) in shares {
        let gauge = ConstGauge::new(value);
        gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
    }
    Ok(())
}

/// The learned cost of batches, l(b) = alpha b + beta, by the costliest kind of their requests.
fn encode_batch_cost(
    encoder: &mut DescriptorEncoder<'_>,
    models: &[ModelStats],
) -> Result<(), Error> {
    type Part = fn(&CostEstimate) -> f64;
    let gauges: [(&str, &str, Option<&Unit>, Part); 4] = [
        (
            "batch_alpha",
            "Learned time of a row in a batch",
            Some(&Unit::Seconds),
            |learned| learned.line.alpha_ns() / 1e9,
        ),
        (
            "batch_beta",
            "Learned time of a dispatch",
            Some(&Unit::Seconds),
            |learned| learned.line.beta_ns() / 1e9,
        ),
        (
            "batch_margin",
            "Measured over learned time that the objective's percentile of batches keeps to",
            None,
            |learned| learned.margin,
        ),
        (
            "batch_error",
            "Mean distance of batches from alpha b + beta, as a share of it",
            None,
            |learned| learned.error,
        ),
    ];
    for (name, help, unit, part) in gauges {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for model in models {
            for (kind, learned) in &model.latency {
                let labels = [("model", model.name.as_str()), ("kind", kind_name(*kind))];
                ConstGauge::new(part(learned)).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

fn encode_models(encoder: &mut DescriptorEncoder<'_>, models: &[ModelStats]) -> Result<(), Error> {
    type Count = fn(&ModelStats) -> u64;
    let counters: [(&str, &str, Count); 9] = [
        ("accepted_requests", "Requests submitted", |m| {
            m.requests_total
        }),
        ("rows", "Rows submitted", |m| m.rows_total),
        ("answered", "Requests answered", |m| m.answered_total),
        ("good", "Requests answered in time", |m| {
            m.answered_total.saturating_sub(m.late_total)
        }),
        ("late", "AnsweredCall after the objective", |m| m.late_total),
        ("failed", "Accepted requests that failed", |m| {
            m.failed_total
        }),
        ("shed", "Requests refused: the queue was full", |m| {
            m.shed_total
        }),
        ("abandoned", "Requests whose client went away", |m| {
            m.abandoned_total
        }),
        ("batches", "Batches handed to a worker", |m| m.batches_total),
    ];
    for (name, help, count) in counters {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for model in models {
            let labels = [("model", model.name.as_str())];
            ConstCounter::new(count(model)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Durations, sizes and dispatch reasons of batches by model and by the costliest kind of output.
fn encode_kinds(encoder: &mut DescriptorEncoder<'_>, models: &[ModelStats]) -> Result<(), Error> {
    type Of = fn(&KindStats) -> &Histogram;
    let seconds = Some(&Unit::Seconds);
    let histograms: [(&str, &str, Option<&Unit>, Of); 5] = [
        ("queue_duration", "Submit to dispatch", seconds, |of| {
            &of.queue_nanos
        }),
        (
            "defer_duration",
            "Of queue_duration, while a worker was free: waited on purpose",
            seconds,
            |of| &of.defer_nanos,
        ),
        ("compute_duration", "In compute threads", seconds, |of| {
            &of.compute_nanos
        }),
        ("total_duration", "Submit to reply ready", seconds, |of| {
            &of.total_nanos
        }),
        ("batch_rows", "Rows of a batch", None, |of| &of.batch_rows),
    ];
    for (name, help, unit, histogram) in histograms {
        let per_unit = if unit.is_some() { 1e9 } else { 1.0 };
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        for (model, of) in kinds(models) {
            let labels = [("model", model), ("kind", kind_name(of.kind))];
            encode_histogram(family.encode_family(&labels)?, histogram(of), per_unit)?;
        }
    }
    let left = DispatchReason::ALL.map(DispatchReason::name);
    let help =
        "Batches by why they left: full, a request arrived, due, a worker became free, replay";
    encode_by_label(
        encoder,
        models,
        ("batches_left", help, "cause"),
        &left,
        |of| &of.dispatch_reasons,
    )?;
    let shared = Sharing::ALL.map(Sharing::name);
    let help = "Batches done, by how the threads of their worker shared them";
    encode_by_label(
        encoder,
        models,
        ("batches_shared", help, "by"),
        &shared,
        |of| &of.shared,
    )
}

fn kinds(models: &[ModelStats]) -> impl Iterator<Item = (&str, &KindStats)> {
    models.iter().flat_map(|model| {
        let kinds = model.kinds.iter();
        kinds.map(|kind| (model.name.as_str(), kind))
    })
}

/// Counters of batches, one for each value of a label.
type Counts<const N: usize> = fn(&KindStats) -> &[u64; N];

/// Encodes counters of batches with one more label.
fn encode_by_label<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    models: &[ModelStats],
    (name, help, label): (&str, &str, &str),
    values: &[&str; N],
    counts: Counts<N>,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (model, of) in kinds(models) {
        for (value, count) in values.iter().zip(counts(of)) {
            let labels = [
                ("model", model),
                ("kind", kind_name(of.kind)),
                (label, value),
            ];
            ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_histogram(
    mut encoder: MetricEncoder<'_>,
    histogram: &Histogram,
    per_unit: f64,
) -> Result<(), Error> {
    let bounds = histogram
        .bounds
        .iter()
        .map(|&bound| bound as f64 / per_unit);
    let buckets: Vec<(f64, u64)> = bounds
        .chain([f64::INFINITY])
        .zip(histogram.buckets.iter().copied())
        .collect();
    let sum = histogram.sum as f64 / per_unit;
    encoder.encode_histogram::<NoLabelSet>(sum, histogram.count, &buckets, None)
}
