//! The state that a built-in server reports at `GET /albacore/v1/state`.
//!
//! An absent field has its default, because a controller may be newer or older than a server.

use serde::Deserialize;

#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct ServerState {
    /// SHA-256 of the settings file.
    pub(crate) settings_sha256: String,
    /// SHA-256 of the settings in force, including parameters from the node's params service;
    /// `None` if the server does not report it.
    pub(crate) in_force_sha256: Option<String>,
    /// Parameters from the node's params service, if there are any.
    pub(crate) params: Option<ParamsState>,
    /// Error that prevents the newest settings from taking effect.
    pub(crate) settings_error: Option<String>,
    pub(crate) workers: WorkerStates,
    pub(crate) models: Vec<ModelState>,
    /// Length of the window of the following measurements.
    pub(crate) window_seconds: f64,
    /// Requests answered within their objective, per second.
    pub(crate) goodput_per_second: f64,
    /// Fraction of time in which the workers are idle, 0 to 1.
    pub(crate) idle_share: f64,
    /// `None` from servers that do not report it.
    pub(crate) front: Option<FrontState>,
    /// 99th percentile of the time from arrival to reply; `None` without requests.
    pub(crate) latency_p99_ms: Option<f64>,
    /// Requests in the window.
    pub(crate) requests: RequestOutcomes,
    /// Requests in its last 15 to 20 s; zero if the server does not report them.
    pub(crate) requests_newest: RequestOutcomes,
}

#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct FrontState {
    /// Fraction of the last seconds in which the busiest thread of the front end used its CPU.
    pub(crate) busy: f64,
    /// Error that prevents the start of a standby of the front process.
    pub(crate) standby_error: Option<String>,
}

/// The parameters that a server received from the params service of its node.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct ParamsState {
    /// `metadata.generation` of the parameters in force; `None` while those of the settings file
    /// are in force.
    pub(crate) generation: Option<i64>,
    /// Error that prevents the last parameters from taking effect.
    pub(crate) refused: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct WorkerStates {
    pub(crate) wanted: u32,
    pub(crate) alive: u32,
    /// Respawns since the server started.
    pub(crate) restarts: i64,
    /// How the last worker exited.
    #[serde(rename = "last_end")]
    pub(crate) last_exit: Option<String>,
}

/// Requests by result.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct RequestOutcomes {
    /// Answered within the objective.
    pub(crate) good: u64,
    pub(crate) late: u64,
    /// Rejected by admission control.
    pub(crate) shed: u64,
    pub(crate) failed: u64,
}

impl RequestOutcomes {
    /// Late, shed and failed requests.
    pub(crate) fn bad(&self) -> u64 {
        self.late
            .saturating_add(self.shed)
            .saturating_add(self.failed)
    }

    pub(crate) fn all(&self) -> u64 {
        self.good.saturating_add(self.bad())
    }
}

#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct ModelState {
    pub(crate) name: String,
    /// Path or URL of the version in force or being loaded.
    pub(crate) source: String,
    /// SHA-256 of the version in force.
    pub(crate) sha256: Option<String>,
    pub(crate) state: ModelLoadState,
    /// Error of the last load.
    pub(crate) error: Option<String>,
    /// The learned batch cost by kind of output.
    pub(crate) latency: Vec<LatencyFit>,
    /// Requests in the window by kind of output; `None` from servers that do not report them.
    pub(crate) outcomes: Option<Vec<KindOutcomes>>,
    /// The decision of policy auto, by kind of output.
    pub(crate) batching: Vec<BatchingChoice>,
}

/// Requests of a model whose most expensive output is of this kind.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct KindOutcomes {
    /// [`UNREAD`] for requests that were rejected before their body was read.
    pub(crate) kind: String,
    #[serde(flatten)]
    pub(crate) requests: RequestOutcomes,
    /// Requests of the last 15 to 20 s.
    pub(crate) newest: RequestOutcomes,
    /// Upper bounds of latency buckets in microseconds, and the number of replies in each bucket.
    pub(crate) latency_us: Vec<(u64, u64)>,
}

/// The kind of requests whose kind of output is unknown.
pub(crate) const UNREAD: &str = "unread";

/// Kinds of output that a server reports.
const KINDS: [&str; 6] = [
    "value",
    "margin",
    "contribs",
    "interactions",
    "leaf",
    UNREAD,
];

/// Buckets of a server's latency histogram: 16 for each power of two of 64-bit numbers.
const BUCKETS_MAX: usize = 16 * 64;

impl ServerState {
    /// Truncates a state to what a server of this version reports, because the pod may run any
    /// image, and its report is kept in memory and written to the status.
    pub(crate) fn bounded(mut self) -> Self {
        self.models.truncate(albacore_api::limits::MODELS_MAX);
        self.models.iter_mut().for_each(ModelState::bound);
        self
    }
}

impl ModelState {
    fn bound(&mut self) {
        let is_digest = |text: &String| text.len() == 64;
        self.sha256 = self.sha256.take().filter(is_digest);
        self.latency = first_of_each_kind(&self.latency, |fit| &fit.kind);
        self.batching = first_of_each_kind(&self.batching, |choice| &choice.kind);
        if let Some(outcomes) = &mut self.outcomes {
            *outcomes = first_of_each_kind(outcomes, |of| &of.kind);
            for of in outcomes {
                of.latency_us.truncate(BUCKETS_MAX);
            }
        }
    }
}

fn first_of_each_kind<T: Clone>(entries: &[T], kind: fn(&T) -> &str) -> Vec<T> {
    let known = KINDS.iter();
    let first = known.filter_map(|known| entries.iter().find(|entry| kind(entry) == *known));
    first.cloned().collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ModelLoadState {
    #[default]
    Loading,
    Loaded,
    /// The last attempt failed; it will be retried.
    Failed,
    /// Unloaded by an API call.
    Unloaded,
}

/// Learned cost model: a batch of b rows takes alpha b + beta.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct LatencyFit {
    pub(crate) kind: String,
    /// Microseconds per row.
    pub(crate) alpha_us: f64,
    /// Microseconds per batch.
    pub(crate) beta_us: f64,
    /// Number of batches from which this was learned.
    pub(crate) samples: u64,
}

/// Whether batches are deferred, and why.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct BatchingChoice {
    pub(crate) kind: String,
    pub(crate) deferred: bool,
    /// A sentence with figures.
    pub(crate) explanation: String,
}

#[cfg(test)]
mod tests {
    use super::{KindOutcomes, ModelLoadState, ModelState, RequestOutcomes, ServerState};

    #[test]
    fn every_load_state_that_a_server_reports_is_read() {
        for (text, state) in [
            ("loading", ModelLoadState::Loading),
            ("loaded", ModelLoadState::Loaded),
            ("failed", ModelLoadState::Failed),
            ("unloaded", ModelLoadState::Unloaded),
        ] {
            let model = serde_json::json!({ "name": "a", "state": text });
            let model: ModelState = serde_json::from_value(model).unwrap();
            assert_eq!(model.state, state);
        }
    }

    #[test]
    fn a_state_of_any_image_is_cut_to_what_servers_report() {
        let kinds: Vec<_> = (0..50)
            .flat_map(|n| ["value".to_owned(), format!("kind {n}")])
            .map(|kind| serde_json::json!({"kind": kind, "samples": 1}))
            .collect();
        let buckets: Vec<(u64, u64)> = (0..2000).map(|bound| (bound, 1)).collect();
        let model = serde_json::json!({
            "name": "a",
            "sha256": "0".repeat(100_000),
            "latency": kinds,
            "batching": kinds,
            "outcomes": [{"kind": "leaf", "latency_us": buckets}],
        });
        let state: ServerState =
            serde_json::from_value(serde_json::json!({"models": vec![model; 40]})).unwrap();
        let state = state.bounded();
        assert_eq!(state.models.len(), 32);
        let ModelState {
            sha256,
            latency,
            batching,
            outcomes,
            ..
        } = &state.models[0];
        assert_eq!((sha256, latency.len(), batching.len()), (&None, 1, 1));
        let outcomes = outcomes.as_ref().unwrap();
        assert_eq!((outcomes.len(), outcomes[0].latency_us.len()), (1, 1024));
    }

    #[test]
    fn outcomes_by_model_are_read_and_an_older_server_has_none() {
        let read =
            |model: serde_json::Value| -> ModelState { serde_json::from_value(model).unwrap() };
        assert_eq!(read(serde_json::json!({"name": "a"})).outcomes, None);
        let model = read(
            serde_json::json!({"name": "a", "slo_met": false, "outcomes": [
            {"kind": "contribs", "good": 3, "late": 1, "shed": 0, "failed": 0, "later": "more",
             "newest": {"good": 1}, "latency_us": [[1023, 4]]}]}),
        );
        let count = |good, late| RequestOutcomes {
            good,
            late,
            ..RequestOutcomes::default()
        };
        let wanted = KindOutcomes {
            kind: "contribs".to_owned(),
            requests: count(3, 1),
            newest: count(1, 0),
            latency_us: vec![(1023, 4)],
        };
        assert_eq!(model.outcomes, Some(vec![wanted]));
    }
}
