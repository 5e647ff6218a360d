//! Counters of infer calls, per event loop: counting a call takes no lock that other loops use.
//! Readers sum over the loops.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use albacore_engine::{DURATION_BOUNDS_NANOS, LoopIndex};
use albacore_proto::inference::StatisticDuration;

use crate::stages::{CallStages, STAGES};

/// Buckets of the call duration. The last one is unbounded.
const BUCKETS: usize = DURATION_BOUNDS_NANOS.len() + 1;

/// An answered infer call.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredCall {
    pub rows: usize,
    pub stages: CallStages,
}

/// An infer call whose reply is encoded.
#[derive(Clone, Copy, Debug)]
pub struct FinishedCall<'a> {
    /// Empty if the model does not exist.
    pub model: &'a str,
    /// The most expensive requested kind.
    pub kind: &'static str,
    pub protocol: &'static str,
    /// The HTTP status or gRPC code.
    pub code: &'a str,
    pub took: Duration,
    /// End of `took`. A single clock reading ends the call and its last stage, so the sum of the
    /// stages never exceeds the duration of the call.
    pub ended_at: Instant,
    /// `None` if it was rejected or failed.
    pub answered: Option<AnsweredCall>,
}

/// A count and a sum of durations in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    count: u64,
    nanos: u64,
}

impl Total {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.nanos += nanos(took);
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.nanos += other.nanos;
    }
}

impl From<Total> for StatisticDuration {
    fn from(total: Total) -> Self {
        Self {
            count: total.count,
            ns: total.nanos,
        }
    }
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

/// Times of a model's calls, divided as in Triton's extension: transfer of a call into shared
/// memory (input), wait for a worker (queue), computation (infer), writing of the reply (output).
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelTotals {
    /// Answered calls, from arrival to reply.
    pub success: Total,
    /// Calls that were rejected or failed.
    pub fail: Total,
    pub queue: Total,
    pub input: Total,
    pub infer: Total,
    pub output: Total,
    /// Rows of answered calls.
    pub rows: u64,
    /// Time of the last reply, milliseconds since 1970; 0 for none.
    pub last_unix_ms: u64,
}

impl ModelTotals {
    fn add(&mut self, call: &FinishedCall<'_>) {
        let Some(answered) = call.answered else {
            return self.fail.add(call.took);
        };
        let stages = answered.stages;
        let writing = call.ended_at.duration_since(stages.computed_at);
        self.success.add(call.took);
        self.input.add(stages.parse + stages.admission);
        self.queue.add(stages.timing.queue);
        self.infer.add(stages.timing.compute);
        self.output.add(writing);
        self.rows += answered.rows as u64;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = since.map_or(0, |since| since.as_millis());
        self.last_unix_ms = u64::try_from(millis).unwrap_or(u64::MAX);
    }

    fn merge(&mut self, other: &Self) {
        self.success.merge(other.success);
        self.fail.merge(other.fail);
        self.queue.merge(other.queue);
        self.input.merge(other.input);
        self.infer.merge(other.infer);
        self.output.merge(other.output);
        self.rows += other.rows;
        self.last_unix_ms = self.last_unix_ms.max(other.last_unix_ms);
    }
}

/// A histogram of durations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Durations {
    /// Counts per bucket of [`DURATION_BOUNDS_NANOS`], not cumulative.
    pub buckets: [u64; BUCKETS],
    total: Total,
}

impl Durations {
    fn add(&mut self, took: Duration) {
        let took_nanos = nanos(took);
        let bucket = DURATION_BOUNDS_NANOS.partition_point(|&bound| bound < took_nanos);
        self.buckets[bucket] += 1;
        self.total.add(took);
    }

    fn merge(&mut self, other: &Self) {
        for (bucket, count) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += count;
        }
        self.total.merge(other.total);
    }

    /// Sum in seconds.
    pub fn seconds(&self) -> f64 {
        self.total.nanos as f64 / 1e9
    }

    pub fn count(&self) -> u64 {
        self.total.count
    }
}

/// Calls of one kind and protocol.
#[derive(Clone, Debug)]
pub struct ClassCounts {
    pub kind: &'static str,
    pub protocol: &'static str,
    /// By code.
    pub finished: Vec<(String, u64)>,
    pub durations: Durations,
}

impl ClassCounts {
    fn new(kind: &'static str, protocol: &'static str) -> Self {
        Self {
            kind,
            protocol,
            finished: Vec::new(),
            durations: Durations::default(),
        }
    }

    fn count_code(&mut self, code: &str, calls: u64) {
        let mut known = self.finished.iter_mut();
        match known.find(|(known, _)| known == code) {
            Some((_, count)) => *count += calls,
            None => self.finished.push((code.to_owned(), calls)),
        }
    }

    fn add(&mut self, code: &str, took: Duration) {
        self.count_code(code, 1);
        self.durations.add(took);
    }

    fn merge(&mut self, other: &Self) {
        for (code, calls) in &other.finished {
            self.count_code(code, *calls);
        }
        self.durations.merge(&other.durations);
    }
}

/// Counters of one model.
#[derive(Clone, Debug, Default)]
pub struct ModelCounts {
    pub totals: ModelTotals,
    /// Stages of answered calls.
    pub stages: [Durations; STAGES],
    pub classes: Vec<ClassCounts>,
}

impl ModelCounts {
    pub fn has_answers(&self) -> bool {
        self.totals.success.count > 0
    }

    fn class(&mut self, kind: &'static str, protocol: &'static str) -> &mut ClassCounts {
        let is_same_class = |class: &ClassCounts| class.kind == kind && class.protocol == protocol;
        let at = self.classes.iter().position(is_same_class);
        let at = at.unwrap_or_else(|| {
            self.classes.push(ClassCounts::new(kind, protocol));
            self.classes.len() - 1
        });
        &mut self.classes[at]
    }
}

/// Counters by model; calls of unknown models have the empty name.
pub type CountsByModel = BTreeMap<String, ModelCounts>;

/// Aligned, so that the locks of two loops share no cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LoopCounts(Mutex<CountsByModel>);

impl LoopCounts {
    fn lock(&self) -> MutexGuard<'_, CountsByModel> {
        // A panic of another holder leaves the counters consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counters of all event loops since the server started.
#[derive(Debug)]
pub struct CallCounts(Box<[LoopCounts]>);

impl CallCounts {
    pub fn new(loops: usize) -> Self {
        Self((0..loops).map(|_| LoopCounts::default()).collect())
    }

    /// Counts a call of this event loop.
    pub fn count(&self, event_loop: LoopIndex, call: &FinishedCall<'_>) {
        let mut models = self.0[event_loop.0].lock();
        if !models.contains_key(call.model) {
            models.insert(call.model.to_owned(), ModelCounts::default());
        }
        if let Some(model) = models.get_mut(call.model) {
            model.totals.add(call);
            if let Some(answered) = call.answered {
                let times = answered.stages.times(call.ended_at);
                for (stage, time) in model.stages.iter_mut().zip(times) {
                    stage.add(time);
                }
            }
            let class = model.class(call.kind, call.protocol);
            class.add(call.code, call.took);
        }
    }

    /// The sums over all event loops.
    pub fn sums(&self) -> CountsByModel {
        let mut sums = CountsByModel::default();
        for event_loop in &self.0 {
            for (name, model) in event_loop.lock().iter() {
                let sum = sums.entry(name.clone()).or_default();
                sum.totals.merge(&model.totals);
                for (sum, stage) in sum.stages.iter_mut().zip(&model.stages) {
                    sum.merge(stage);
                }
                for class in &model.classes {
                    sum.class(class.kind, class.protocol).merge(class);
                }
            }
        }
        sums
    }

    /// The sums of one model.
    pub fn totals(&self, model: &str) -> ModelTotals {
        let mut sum = ModelTotals::default();
        for event_loop in &self.0 {
            if let Some(model) = event_loop.lock().get(model) {
                sum.merge(&model.totals);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use albacore_engine::Timing;

    use super::*;

    #[test]
    fn calls_of_all_loops_are_added_up_by_model_kind_protocol_and_code() {
        let counts = CallCounts::new(2);
        let computed_at = Instant::now();
        let call = |model, code, micros| FinishedCall {
            model,
            kind: "value",
            protocol: "http",
            code,
            took: Duration::from_micros(micros),
            // In the future, to verify that counting does not read the clock.
            ended_at: computed_at + Duration::from_secs(5),
            answered: (code == "200").then(|| AnsweredCall {
                rows: 3,
                stages: CallStages {
                    parse: Duration::from_micros(1),
                    admission: Duration::from_micros(60),
                    timing: Timing::default(),
                    computed_at,
                },
            }),
        };
        counts.count(LoopIndex(0), &call("m", "200", 50));
        counts.count(LoopIndex(1), &call("m", "200", 51));
        counts.count(LoopIndex(1), &call("m", "429", 20_000_000));
        counts.count(LoopIndex(0), &call("", "404", 1));
        let sums = counts.sums();
        assert_eq!(sums.keys().collect::<Vec<_>>(), ["", "m"]);
        let [class] = &sums["m"].classes[..] else {
            panic!("{sums:?}");
        };
        assert_eq!(
            class.finished,
            [("200".to_owned(), 2), ("429".to_owned(), 1)]
        );
        let buckets = &class.durations.buckets;
        let buckets = (buckets[0], buckets[1], buckets[15]);
        assert_eq!((buckets, class.durations.count()), ((1, 1, 1), 3));
        let [parse, admission, ..] = &sums["m"].stages;
        assert_eq!((parse.buckets[0], admission.buckets[1]), (2, 2));
        let totals = counts.totals("m");
        assert_eq!((totals.rows, totals.fail.count), (6, 1));
        assert_eq!(totals.success.nanos, 101_000);
        assert_eq!(totals.output.nanos, 10_000_000_000);
        assert!(totals.last_unix_ms > 0);
        assert_eq!(counts.totals("").fail.count, 1);
    }
}
