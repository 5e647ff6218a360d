//! A revision that is being rolled out to the workers.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::model::ModelRevision;

/// Result of an installation: the candidate was promoted, or the reason of its rejection.
pub(crate) type Installed = Result<(), String>;

/// A revision that is not served until every worker has opened it.
#[derive(Debug)]
pub(crate) struct CandidateRevision {
    pub(crate) revision: Arc<ModelRevision>,
    pub(crate) reply: oneshot::Sender<Installed>,
    /// Workers that crashed while opening it.
    pub(crate) crashes: u32,
}

/// Progress of the rollout of models to workers; see `model_rollout`.
#[derive(Debug, Default)]
pub(crate) struct Rollout {
    pub(crate) candidate: Option<CandidateRevision>,
    /// A worker may need a command, or may be able to serve again.
    pub(crate) is_pending: bool,
}
