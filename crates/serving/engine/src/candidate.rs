//! An edition that is being rolled out to the workers.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::model::Edition;

/// Whether a candidate was promoted, or why it was rejected.
pub(crate) type Installed = Result<(), String>;

/// An edition that is not served until every worker has it open.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) edition: Arc<Edition>,
    pub(crate) reply: oneshot::Sender<Installed>,
    /// Workers that crashed while they opened it.
    pub(crate) crashes: u32,
}

/// Progress of the rollout of models to workers; see `model_rollout`.
#[derive(Debug, Default)]
pub(crate) struct Rollout {
    pub(crate) candidate: Option<Candidate>,
    /// A worker may have to get a command, or may be able to serve again.
    pub(crate) is_pending: bool,
}
