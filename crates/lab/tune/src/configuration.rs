//! The tuned fields of a deployment, and their candidate values.

use albacore_api::{
    Batching, BatchingPolicy, Front, InferenceDeploymentSpec, MainThreadPolicy, PlacementMode,
    Timespan,
};
use serde::Serialize;

/// Values of the tuned fields.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// W, the number of workers.
    pub workers: u16,
    /// T, the threads per worker.
    pub threads: u16,
    pub mode: PlacementMode,
    pub main_thread: MainThreadPolicy,
    pub policy: BatchingPolicy,
    pub max_rows: u32,
    /// For policy Timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<Timespan>,
    /// For deferred batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Timespan>,
    /// Number of event loops; `None`: derived by the server from its cpus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front_threads: Option<u16>,
}

impl Configuration {
    pub(crate) fn of(spec: &InferenceDeploymentSpec) -> Self {
        Self {
            workers: spec.workers,
            threads: spec.threads,
            mode: spec.mode,
            main_thread: spec.placement.main_thread,
            policy: spec.batching.policy,
            max_rows: spec.batching.max_rows,
            max_delay: spec.batching.max_delay,
            window: spec.batching.window,
            front_threads: spec.front.and_then(|front| front.threads),
        }
    }

    pub(crate) fn apply(&self, spec: &mut InferenceDeploymentSpec) {
        spec.workers = self.workers;
        spec.threads = self.threads;
        spec.mode = self.mode;
        spec.placement.main_thread = self.main_thread;
        let is_auto = self.policy == BatchingPolicy::Auto;
        spec.batching = Batching {
            policy: self.policy,
            max_rows: self.max_rows,
            max_delay: self.max_delay,
            window: self.window,
            prefer: spec.batching.prefer.filter(|_| is_auto),
        };
        let front = Front {
            threads: self.front_threads,
            ..spec.front.unwrap_or_default()
        };
        spec.front = (front != Front::default()).then_some(front);
    }

    /// Name in tables, such as `4 x 2 Scatter, Auto, 1024 rows`.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = format!(
            "{} x {} {:?}, {:?}, {} rows",
            self.workers, self.threads, self.mode, self.policy, self.max_rows
        );
        if let Some(delay) = self.max_delay {
            name += &format!(", delay {delay}");
        }
        if let Some(window) = self.window {
            name += &format!(", window {window}");
        }
        if let Some(threads) = self.front_threads {
            name += &format!(", {threads} front");
        }
        if self.main_thread == MainThreadPolicy::WorkerSet {
            name += ", main thread on the worker's cpus";
        }
        name
    }
}

/// Candidates of W and T: every number up to 4, then in steps of 25 % to 50 %.
const COUNTS: [u16; 15] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256];

/// Maximum number of threads per cpu: more of them only compete for it.
const THREADS_PER_CPU_MAX: usize = 2;

/// Candidates of the maximum rows of a batch.
const MAX_ROWS: [u32; 4] = [64, 256, 1024, 4096];

/// Candidates of the maximum delay under policy Timeout, as divisors of the objective.
const DELAY_SHARES: [u64; 2] = [50, 10];

/// All combinations of the fields that the simulator models, for these numbers of threads and an
/// objective in microseconds.
pub(crate) fn candidates(
    base: &Configuration,
    threads: &[u16],
    cpus: usize,
    objective: u64,
) -> Vec<Configuration> {
    let mut all = Vec::new();
    for (workers, threads) in sizes(threads, cpus) {
        for front_threads in fronts(cpus) {
            for max_rows in MAX_ROWS {
                let of = |policy, max_delay| Configuration {
                    workers,
                    threads,
                    policy,
                    max_rows,
                    max_delay,
                    window: None,
                    front_threads,
                    ..base.clone()
                };
                let policies = [
                    BatchingPolicy::Auto,
                    BatchingPolicy::Eager,
                    BatchingPolicy::Deferred,
                ];
                all.extend(policies.map(|policy| of(policy, None)));
                let delay = |share| Timespan::from_micros(objective / share);
                let delays = DELAY_SHARES.into_iter().filter_map(delay);
                all.extend(delays.map(|delay| of(BatchingPolicy::Timeout, Some(delay))));
            }
        }
    }
    all
}

/// W and T of all candidates.
pub(crate) fn sizes(threads: &[u16], cpus: usize) -> Vec<(u16, u16)> {
    let most = THREADS_PER_CPU_MAX * cpus;
    let fits = |&(w, t): &(u16, u16)| usize::from(w) * usize::from(t) <= most;
    let workers = COUNTS.into_iter().filter(|&w| usize::from(w) <= cpus);
    workers
        .flat_map(|w| threads.iter().map(move |&t| (w, t)))
        .filter(fits)
        .collect()
}

/// Numbers of threads that the recipe tries, ascending.
pub(crate) fn thread_counts(cpus: usize) -> Vec<u16> {
    let powers = (0..8).map(|power| 1 << power);
    powers.filter(|&t| usize::from(t) <= cpus).collect()
}

/// Candidates of the number of event loops: the server's default, and powers of two up to a quarter
/// of the cpus.
fn fronts(cpus: usize) -> Vec<Option<u16>> {
    let counts = (0..6).map(|power| 1_u16 << power);
    let some = counts
        .filter(|&n| usize::from(n) * 4 <= cpus.max(4))
        .map(Some);
    std::iter::once(None).chain(some).collect()
}

/// A configuration of 2 x 2.
#[cfg(test)]
pub(crate) fn tests_base() -> Configuration {
    Configuration {
        workers: 2,
        threads: 2,
        mode: PlacementMode::Scatter,
        main_thread: MainThreadPolicy::Pinned,
        policy: BatchingPolicy::Auto,
        max_rows: 1024,
        max_delay: None,
        window: None,
        front_threads: None,
    }
}

#[cfg(test)]
mod tests {
    use super::tests_base as base;
    use super::*;

    #[test]
    fn candidates_fit_the_cpus_and_are_valid() {
        let all = candidates(&base(), &thread_counts(8), 8, 25_000);
        assert!(all.contains(&Configuration {
            workers: 8,
            threads: 2,
            ..base()
        }));
        let threads = |of: &Configuration| usize::from(of.workers) * usize::from(of.threads);
        assert!(all.iter().all(|of| threads(of) <= 16));
        for one in &all {
            let is_timeout = one.policy == BatchingPolicy::Timeout;
            assert_eq!(one.max_delay.is_some(), is_timeout, "{}", one.name());
        }
        assert_eq!(sizes(&[1, 2], 2), [(1, 1), (1, 2), (2, 1), (2, 2)]);
        assert_eq!(fronts(2), [None, Some(1)]);
        assert_eq!(fronts(16), [None, Some(1), Some(2), Some(4)]);
    }

    #[test]
    fn other_front_end_fields_are_preserved() {
        let text = "apiVersion: albacore.dev/v1beta1\nkind: InferenceDeployment\n\
            metadata: {name: a}\nspec: {workers: 1, threads: 1, models: [{name: m, uri: 'file:///m.ubj'}]}\n";
        let mut deployment = albacore_api::read_deployment(text, "a").unwrap();
        let spec = &mut deployment.spec;
        let front = Front {
            threads: Some(2),
            load_reports: Some(albacore_api::LoadReportPolicy::Always),
            envoy_health_header: Some(true),
        };
        spec.front = Some(front);
        base().apply(spec);
        let threads = None;
        assert_eq!(spec.front, Some(Front { threads, ..front }));
    }

    #[test]
    fn names_contain_the_configured_front_threads() {
        let one = Configuration {
            front_threads: Some(2),
            ..base()
        };
        assert_eq!(one.name(), "2 x 2 Scatter, Auto, 1024 rows, 2 front");
    }
}
