//! Metrics that are computed at each scrape: a snapshot of the engine, and the state of the params
//! stream.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, EncodeMetric,
    MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::load_report::LoadReporter;
use albacore_batching::deadlines::CostEstimate;
use albacore_call_counts::{CallCounts, Durations, STAGE_NAMES};
use albacore_engine::{
    Choice, DURATION_BOUNDS_NANOS, DispatchReason, Engine, Histogram, Kind, KindStats, LockTimes,
    MemoryStats, ModelStats, Outcomes, ServerLoad, Stats, WorkDivision, WorkerStats, kind_name,
    kind_or_unread,
};
use albacore_live_settings::effective_config::EffectiveConfig;
use albacore_live_settings::model_status::StatusStore;
use albacore_supervision::StandbyState;

#[derive(Debug)]
pub(super) struct CallCollector(pub(super) Arc<CallCounts>);

impl Collector for CallCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let (mut families, sums) = (Families(encoder), self.0.sums());
        let classes = || {
            let models = sums.iter();
            models
                .flat_map(|(model, counts)| counts.classes.iter().map(move |class| (model, class)))
        };
        let finished = classes().flat_map(|(model, class)| {
            let codes = class.finished.iter();
            codes.map(move |(code, calls)| {
                let labels = [
                    ("model", model.as_str()),
                    ("kind", class.kind),
                    ("protocol", class.protocol),
                    ("code", code),
                ];
                (labels, *calls)
            })
        });
        families.counters("requests", "Finished infer calls", None, finished)?;
        let help = "From the head of an infer call to its serialized reply";
        let seconds = Some(&Unit::Seconds);
        let mut family =
            families.family("request_duration", help, seconds, MetricType::Histogram)?;
        for (model, class) in classes() {
            let labels = [
                ("model", model.as_str()),
                ("kind", class.kind),
                ("protocol", class.protocol),
            ];
            encode_durations(family.encode_family(&labels)?, &class.durations)?;
        }
        let help = "Stages of answered infer calls, one after the other";
        let mut family = families.family("request_stage", help, seconds, MetricType::Histogram)?;
        for (model, counts) in sums.iter().filter(|(_, counts)| counts.has_answers()) {
            for (stage, durations) in STAGE_NAMES.into_iter().zip(&counts.stages) {
                let labels = [("model", model.as_str()), ("stage", stage)];
                encode_durations(family.encode_family(&labels)?, durations)?;
            }
        }
        Ok(())
    }
}

fn encode_durations(mut metric: MetricEncoder<'_>, durations: &Durations) -> Result<(), Error> {
    let bounds = DURATION_BOUNDS_NANOS
        .iter()
        .map(|&bound| bound as f64 / 1e9);
    let bounds = bounds.chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(durations.buckets).collect();
    let (sum, count) = (durations.seconds(), durations.count());
    metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

pub(super) struct EngineCollector(pub(super) Arc<Engine>);

impl std::fmt::Debug for EngineCollector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("EngineCollector")
    }
}

impl Collector for EngineCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let (mut families, stats) = (Families(encoder), self.0.stats());
        encode_server(&mut families, &stats)?;
        encode_workers(&mut families, &stats)?;
        encode_memory(&mut families, &stats.memory)?;
        encode_load(&mut families, &stats.load)?;
        encode_models(&mut families, &stats.models)?;
        encode_outcomes(&mut families, &stats.models)?;
        encode_kinds(&mut families, &stats.models)?;
        encode_batch_cost(&mut families, &stats.models)?;
        encode_choices(&mut families, &stats.models)
    }
}

#[derive(Debug)]
pub(super) struct ParamsCollector(pub(super) Arc<EffectiveConfig>);

impl Collector for ParamsCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let (_, Some(stream)) = self.0.current() else {
            return Ok(());
        };
        let mut families = Families(encoder);
        let help = "1 while the stream of --params is open";
        families.gauge("params_connected", help, i64::from(stream.is_connected))?;
        let generation = stream.parameters.map_or(0, |it| it.generation);
        let help = "Generation of the stream's parameters in force; 0 while the settings are in \
                    force";
        families.gauge("params_generation", help, integer(generation))?;
        let help = "Messages of the stream that were applied";
        families.counter("params_messages_taken", help, stream.applied_total)?;
        let help = "Messages of the stream that were invalid";
        families.counter("params_messages_refused", help, stream.refused_total)?;
        let help = "Streams of --params that ended or could not be opened";
        families.counter("params_streams_lost", help, stream.lost_total)
    }
}

#[derive(Debug)]
pub(super) struct SupervisionCollector(pub(super) Arc<StatusStore>);

impl Collector for SupervisionCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let status = self.0.snapshot().supervision;
        let mut families = Families(encoder);
        let help = "Front processes that died, since the server was started";
        families.counter("front_deaths", help, status.front_deaths)?;
        let help = "Connections that were reset because their front died";
        families.counter("front_connections_reset", help, status.connections_reset)?;
        let help = "Fronts that a standby has replaced";
        families.counter("front_takeovers", help, status.takeovers)?;
        let help = "Binaries that were replaced while the server ran (SIGUSR2)";
        families.counter("upgrades", help, status.upgrades)?;
        let help = "1 while a standby is ready to replace the front";
        let is_ready = status.standby == StandbyState::Ready;
        families.gauge("standby_ready", help, i64::from(is_ready))
    }
}

pub(super) struct LoadReportCollector(pub(super) Arc<LoadReporter>);

impl std::fmt::Debug for LoadReportCollector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LoadReportCollector")
    }
}

impl Collector for LoadReportCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Requests whose endpoint-load-metrics-format is not a known format";
        let ignored = self.0.unknown_formats();
        Families(encoder).counter("load_report_formats_unknown", help, ignored)
    }
}

/// Encoder of metric families.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> Result<(), Error> {
        let metric = self.family(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let metric = self.family(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    /// Encodes a counter with one sample per label set.
    fn counters<L: EncodeLabelSet, N: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: impl Iterator<Item = (L, N)>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, unit, MetricType::Counter)?;
        for (labels, value) in samples {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Encodes a histogram per model and kind; with a unit, the values are times.
    fn histograms<'s>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: impl Iterator<Item = (&'s str, Kind, &'s Histogram)>,
    ) -> Result<(), Error> {
        let per_unit = if unit.is_some() { 1e9 } else { 1.0 };
        let mut family = self.family(name, help, unit, MetricType::Histogram)?;
        for (model, kind, histogram) in samples {
            let labels = [("model", model), ("kind", kind_name(kind))];
            let bounds = histogram
                .bounds
                .iter()
                .map(|&bound| bound as f64 / per_unit);
            let counts = histogram.buckets.iter().copied();
            let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(counts).collect();
            let sum = histogram.sum as f64 / per_unit;
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(sum, histogram.count, &buckets, None)?;
        }
        Ok(())
    }

    fn family<'e>(
        &'e mut self,
        name: &'e str,
        help: &str,
        unit: Option<&'e Unit>,
        metric_type: MetricType,
    ) -> Result<MetricEncoder<'e>, Error> {
        self.0.encode_descriptor(name, help, unit, metric_type)
    }
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn encode_server(families: &mut Families<'_>, stats: &Stats) -> Result<(), Error> {
    let mut gauge = |name, help, value| families.gauge(name, help, integer(value as u64));
    let help = "Rows reserved or waiting for a worker";
    gauge("queue_rows", help, stats.queue_rows)?;
    let help = "Upper bound of queue_rows";
    gauge("queue_rows_max", help, stats.queue_rows_max)?;
    gauge("workers", "Workers configured", stats.workers)?;
    gauge("workers_ready", "Workers that are up", stats.workers_ready)?;
    let help = "Workers that run a batch";
    gauge("workers_busy", help, stats.workers_busy)?;
    gauge("threads", "Compute threads of each worker", stats.threads)?;
    let help = "Shared memory in use";
    gauge("arena_used_bytes", help, stats.arena_used_bytes)?;
    let help = "Shared memory that can be used";
    gauge("arena_bytes", help, stats.arena_bytes)?;
    if let Some(front) = stats.front_cost {
        let help = "Cpu time of the front end for a request";
        let unit = Some(&Unit::Seconds);
        let metric = families.family("front_request_cpu", help, unit, MetricType::Gauge)?;
        ConstGauge::new(front.per_request.0 as f64 / 1e9).encode(metric)?;
    }
    let help = "Time that a lock of the front end was held: state, which all threads share, \
                inboxes, memory and tallies of replies";
    let seconds = Some(&Unit::Seconds);
    let LockTimes {
        state,
        inboxes,
        memory,
        tallies,
    } = stats.locked;
    let locked = [
        ("state", state),
        ("inboxes", inboxes),
        ("memory", memory),
        ("tallies", tallies),
    ];
    let locked = locked.into_iter();
    let locked = locked.map(|(lock, held)| ([("lock", lock)], held.as_secs_f64()));
    families.counters("front_serial", help, seconds, locked)?;
    let help = "Share of the last seconds in which a thread of the front end used its cpu, 0 to 1";
    let mut family = families.family("front_busy_ratio", help, None, MetricType::Gauge)?;
    for (thread, ratio) in stats.front_busy_ratios.iter().enumerate() {
        let labels = [("thread", thread.to_string())];
        ConstGauge::new(*ratio).encode(family.encode_family(&labels)?)?;
    }
    let help = "Part of a request's time that the front end may take before requests over their \
                share of it are refused, learned, 0 to 1";
    families.gauge("front_time_limit_ratio", help, stats.front_time_limit_ratio)?;
    let help = "Workers killed because they hung";
    families.counter("worker_hangs", help, stats.worker_hangs_total)?;
    let help = "Batches run again because their worker was lost";
    families.counter("replayed_batches", help, stats.replayed_batches_total)
}

/// Counters of each worker. Idle workers have samples, too, so that rates start at zero.
fn encode_workers(families: &mut Families<'_>, stats: &Stats) -> Result<(), Error> {
    let of = |worker: usize| stats.each_worker.get(worker).copied().unwrap_or_default();
    let label = |worker: usize| [("worker", worker.to_string())];
    let count = |count: fn(WorkerStats) -> u64| {
        (0..stats.workers).map(move |worker| (label(worker), count(of(worker))))
    };
    let help = "Restarts of a lost worker, by worker";
    families.counters("worker_restarts", help, None, count(|of| of.restarts_total))?;
    let help = "Batches done, by worker";
    families.counters("worker_batches", help, None, count(|of| of.batches_total))?;
    let seconds = |worker| of(worker).busy_nanos_total as f64 / 1e9;
    let busy = (0..stats.workers).map(|worker| (label(worker), seconds(worker)));
    let help = "Time of a worker with a batch, by worker";
    families.counters("worker_busy", help, Some(&Unit::Seconds), busy)
}

/// NUMA placement of the memory of models and workers.
fn encode_memory(families: &mut Families<'_>, memory: &MemoryStats) -> Result<(), Error> {
    let mut by_node: BTreeMap<_, u64> = BTreeMap::new();
    let mut huge: BTreeMap<_, u64> = BTreeMap::new();
    for image in &memory.images {
        let model = image.model.as_str();
        *by_node.entry((model, image.node)).or_default() += image.bytes;
        *huge.entry(model).or_default() += image.huge_bytes;
    }
    let help = "Bytes of compiled models by the NUMA node that holds them; unknown: several, or \
                not reported by the kernel";
    let mut family = families.family("model_image_bytes", help, None, MetricType::Gauge)?;
    for ((model, node), bytes) in by_node {
        let node = node.map_or("unknown".to_owned(), |node| node.to_string());
        let labels = [("model", model), ("node", &node)];
        ConstGauge::new(integer(bytes)).encode(family.encode_family(&labels)?)?;
    }
    let help = "Of model_image_bytes, bytes in huge pages";
    let mut family = families.family("model_image_huge_bytes", help, None, MetricType::Gauge)?;
    for (model, bytes) in huge {
        let labels = [("model", model)];
        ConstGauge::new(integer(bytes)).encode(family.encode_family(&labels)?)?;
    }
    let help = "Workers pinned to one NUMA node that read a model from another";
    families.gauge("workers_far", help, integer(memory.workers_far as u64))?;
    let results = [
        ([("result", "made")], memory.copies_made_total),
        ([("result", "failed")], memory.copies_failed_total),
    ];
    let help = "Copies of models to NUMA nodes with workers";
    families.counters("model_image_copies", help, None, results.into_iter())?;
    let help = "Workers that allocated scratch memory again because they moved to another NUMA \
                node";
    families.counter("worker_scratch_moves", help, memory.scratch_moves_total)
}

/// Load of the last minute.
fn encode_load(families: &mut Families<'_>, load: &ServerLoad) -> Result<(), Error> {
    let help = "Factor for the number of pods: 1/(1-r), r bad share of worst model; if 0, \
                (1-f)/0.8, f idle";
    families.gauge("load_factor", help, load.factor)?;
    let help = "Share of requests that were late, shed or failed, last minute";
    families.gauge("bad_rate", help, load.bad_rate)?;
    let help = "Share of the workers' time that was idle, last minute";
    families.gauge("idle_share", help, load.idle_share)?;
    let help = "Requests answered in time, per second, last minute";
    families.gauge("goodput_per_second", help, load.goodput_per_second)
}

fn encode_models(families: &mut Families<'_>, models: &[ModelStats]) -> Result<(), Error> {
    type Count = fn(&ModelStats) -> u64;
    let good: Count = |of| of.answered_total.saturating_sub(of.late_total);
    let counters: [(&str, &str, Count); 9] = [
        ("accepted_requests", "Requests submitted", |of| {
            of.requests_total
        }),
        ("rows", "Rows submitted", |of| of.rows_total),
        ("answered", "Requests answered", |of| of.answered_total),
        ("good", "Requests answered in time", good),
        ("late", "Requests answered after the objective", |of| {
            of.late_total
        }),
        ("failed", "Accepted requests that failed", |of| {
            of.failed_total
        }),
        ("shed", "Requests refused by admission", |of| of.shed_total),
        ("abandoned", "Requests whose client disconnected", |of| {
            of.abandoned_total
        }),
        ("batches", "Batches handed to a worker", |of| {
            of.batches_total
        }),
    ];
    for (name, help, count) in counters {
        let samples = models.iter();
        let samples = samples.map(|model| ([("model", model.name.as_str())], count(model)));
        families.counters(name, help, None, samples)?;
    }
    let help = "Worker time of finished batches, had each been as large as those under load";
    let seconds = Some(&Unit::Seconds);
    let mut family = families.family("work", help, seconds, MetricType::Counter)?;
    for model in models {
        let labels = [("model", model.name.as_str())];
        let worked = model.work_nanos_total as f64 / 1e9;
        ConstCounter::new(worked).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Requests by model, costliest output kind and outcome, and whether objectives are met.
fn encode_outcomes(families: &mut Families<'_>, models: &[ModelStats]) -> Result<(), Error> {
    let outcomes = models.iter().flat_map(|model| {
        let of_kinds = model.kinds.iter();
        let of_kinds = of_kinds.flat_map(|of| {
            let Outcomes {
                good,
                late,
                shed,
                failed,
            } = of.outcomes;
            let counts = [
                ("good", good),
                ("late", late),
                ("shed", shed),
                ("failed", failed),
            ];
            counts.map(|(outcome, count)| (Some(of.kind), outcome, count))
        });
        let kinds = model.kinds.iter();
        let shed: u64 = kinds.map(|of| of.outcomes.shed).sum();
        let unread = (None, "shed", model.shed_total.saturating_sub(shed));
        of_kinds.chain([unread]).map(|(kind, outcome, count)| {
            let labels = [
                ("model", model.name.as_str()),
                ("kind", kind_or_unread(kind)),
                ("outcome", outcome),
            ];
            (labels, count)
        })
    });
    let help = "Requests by costliest kind and outcome; unread: refused before the body was read";
    families.counters("outcomes", help, None, outcomes)?;
    let help = "1 if a model's requests, in all and of each kind, met its objective, last minute";
    let mut family = families.family("slo_met", help, None, MetricType::Gauge)?;
    for model in models {
        if let Some(is_met) = model.load().is_objective_met() {
            let labels = [("model", model.name.as_str())];
            ConstGauge::new(i64::from(is_met)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Durations, sizes and dispatch reasons of batches, by model and costliest output kind.
fn encode_kinds(families: &mut Families<'_>, models: &[ModelStats]) -> Result<(), Error> {
    type Of = fn(&KindStats) -> &Histogram;
    let defer = "Part of queue_duration while a worker was free: deliberate waiting";
    let times: [(&str, &str, Of); 4] = [
        ("queue_duration", "Submit to dispatch", |of| &of.queue_nanos),
        ("defer_duration", defer, |of| &of.defer_nanos),
        ("compute_duration", "In compute threads", |of| {
            &of.compute_nanos
        }),
        ("total_duration", "Submit to reply ready", |of| {
            &of.total_nanos
        }),
    ];
    for (name, help, of) in times {
        let histograms = kinds(models).map(|(model, stats)| (model, stats.kind, of(stats)));
        families.histograms(name, help, Some(&Unit::Seconds), histograms)?;
    }
    let histograms = kinds(models).map(|(model, stats)| (model, stats.kind, &stats.batch_rows));
    families.histograms("batch_rows", "Rows of a batch", None, histograms)?;
    let reasons = kinds(models).flat_map(|(model, of)| {
        let counts = DispatchReason::ALL.into_iter().zip(of.dispatch_reasons);
        counts.map(move |(reason, count)| {
            let kind = kind_name(of.kind);
            (
                [("model", model), ("kind", kind), ("cause", reason.name())],
                count,
            )
        })
    });
    let help = "Batches by the reason of their dispatch: full, arrival, due, free worker, replay";
    families.counters("batches_left", help, None, reasons)?;
    let shared = kinds(models).flat_map(|(model, of)| {
        let counts = WorkDivision::ALL.into_iter().zip(of.shared);
        counts.map(move |(sharing, count)| {
            let kind = kind_name(of.kind);
            (
                [("model", model), ("kind", kind), ("by", sharing.name())],
                count,
            )
        })
    });
    let help = "Batches done, by how the threads of their worker shared them";
    families.counters("batches_shared", help, None, shared)
}

fn kinds(models: &[ModelStats]) -> impl Iterator<Item = (&str, &KindStats)> {
    models.iter().flat_map(|model| {
        let kinds = model.kinds.iter();
        kinds.map(|kind| (model.name.as_str(), kind))
    })
}

/// Learned cost of batches, l(b) = alpha b + beta, by the costliest output kind of their requests.
fn encode_batch_cost(families: &mut Families<'_>, models: &[ModelStats]) -> Result<(), Error> {
    type Part = fn(&CostEstimate) -> f64;
    let margin = "Ratio of measured to learned time at the percentile of the objective";
    let error = "Mean relative deviation of batches from alpha b + beta";
    let row = "Learned time of a row in a batch";
    let seconds = Some(&Unit::Seconds);
    let gauges: [(&str, &str, Option<&Unit>, Part); 4] = [
        ("batch_alpha", row, seconds, |of| of.line.alpha_ns() / 1e9),
        ("batch_beta", "Learned time of a dispatch", seconds, |of| {
            of.line.beta_ns() / 1e9
        }),
        ("batch_margin", margin, None, |of| of.margin),
        ("batch_error", error, None, |of| of.error),
    ];
    for (name, help, unit, part) in gauges {
        let mut family = families.family(name, help, unit, MetricType::Gauge)?;
        for model in models {
            for (kind, learned) in &model.latency {
                let labels = [("model", model.name.as_str()), ("kind", kind_name(*kind))];
                ConstGauge::new(part(learned)).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

/// Choices of policy `auto`, and the estimated gain and cost of deferring batches.
fn encode_choices(families: &mut Families<'_>, models: &[ModelStats]) -> Result<(), Error> {
    type Part = fn(&Choice) -> Option<f64>;
    let chosen = "1 while policy auto defers batches, 0 while it dispatches them at once";
    let load = "Work of all queues in eager batches, as a share of the workers' capacity";
    let gain = "Predicted goodput gain of deferring, as a share of eager goodput";
    let idle = "Workers that deferring leaves idle at the present rate";
    let p50 = "Predicted increase of the median latency if requests are deferred";
    let seconds = Some(&Unit::Seconds);
    let gauges: [(&str, &str, Option<&Unit>, Part); 5] = [
        ("batching_deferred", chosen, None, |of| {
            Some(f64::from(u8::from(of.is_deferred)))
        }),
        ("batching_load_ratio", load, None, |of| Some(of.load)),
        ("batching_deferral_gain_ratio", gain, None, |of| {
            Some(of.forecast?.goodput_gain())
        }),
        ("batching_deferral_idle_workers", idle, None, |of| {
            Some(of.forecast?.idle_workers_gain)
        }),
        ("batching_deferral_p50_cost", p50, seconds, |of| {
            Some(of.forecast?.p50_cost.0 as f64 / 1e9)
        }),
    ];
    for (name, help, unit, part) in gauges {
        let mut family = families.family(name, help, unit, MetricType::Gauge)?;
        for model in models {
            for (kind, choice) in &model.choices {
                let Some(value) = part(choice) else { continue };
                let labels = [("model", model.name.as_str()), ("kind", kind_name(*kind))];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}
