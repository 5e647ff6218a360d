//! What a built-in server says of itself at `GET /albacore/v1/state`.
//!
//! A field that is absent has its empty value: a controller can be newer or older than a server.

use serde::Deserialize;

#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub struct ServerState {
    /// SHA-256 of the file of the settings.
    pub settings_sha256: String,
    /// SHA-256 of the settings as they are in force, with what was told by the node's params;
    /// `None` of a server that does not say.
    pub in_force_sha256: Option<String>,
    /// What was told by the node's params; `None` without.
    pub params: Option<Params>,
    /// Why the newest settings are not in force.
    pub settings_error: Option<String>,
    pub workers: Workers,
    pub models: Vec<ModelState>,
    /// The time that the figures below were measured over.
    pub window_seconds: f64,
    /// Requests answered within their objective.
    pub goodput_per_second: f64,
    /// Share of the workers' time without work, 0 to 1.
    pub idle_share: f64,
    /// 99th percentile from arrival to reply; `None` without requests.
    pub latency_p99_ms: Option<f64>,
    /// Requests of the window.
    pub requests: Requests,
    /// Those of its last 15 to 20 s; none of a server that does not tell.
    pub requests_newest: Requests,
}

/// What a server was told by the params of its node.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Params {
    /// `metadata.generation` of the parameters in force; `None` while those of the file are.
    pub generation: Option<i64>,
    /// Why what was told last is not in force.
    pub refused: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Workers {
    pub wanted: u32,
    pub alive: u32,
    /// Started again after a death, since the server started.
    pub restarts: i64,
    /// How the last of those ended.
    pub last_end: Option<String>,
}

/// Requests by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// Answered within the objective.
    pub good: u64,
    pub late: u64,
    /// Refused at the door.
    pub shed: u64,
    pub failed: u64,
}

impl Requests {
    /// Late, shed and failed.
    pub fn bad(&self) -> u64 {
        self.late
            .saturating_add(self.shed)
            .saturating_add(self.failed)
    }

    pub fn all(&self) -> u64 {
        self.good.saturating_add(self.bad())
    }
}

/// A model of a server.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub struct ModelState {
    pub name: String,
    /// Path or URL of what is in force or wanted.
    pub source: String,
    /// SHA-256 of the bytes in force.
    pub sha256: Option<String>,
    /// How far it is.
    pub state: Loading,
    /// Why it is not loaded.
    pub error: Option<String>,
    /// What a batch costs, by kind.
    pub latency: Vec<Latency>,
}

/// How far a model is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loading {
    #[default]
    Loading,
    Loaded,
    /// Tried and failed; tried again later.
    Failed,
}

/// A batch of b rows takes alpha b + beta.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Latency {
    pub kind: String,
    /// Microseconds for a row.
    pub alpha_us: f64,
    /// Microseconds for a batch.
    pub beta_us: f64,
    /// Batches that this was learned from.
    pub samples: u64,
}
