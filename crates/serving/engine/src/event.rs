//! What the engine reports to its owner as it happens.

use albacore_batching::auto::Choice;

use crate::Kind;

/// A change that the owner may report.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineEvent {
    WorkerStarted {
        worker: usize,
        pid: i32,
    },
    /// The process ended without a command to stop; it is started again.
    WorkerExited {
        worker: usize,
        pid: i32,
        /// How it ended, for example `signal 9`.
        cause: String,
    },
    /// Policy `auto` chose whether batches of a model and kind are deferred.
    BatchingChosen {
        model: String,
        /// The costliest kind of output of their requests.
        kind: Kind,
        choice: Choice,
    },
}

/// Called with each [`EngineEvent`], from whichever thread sees it; must not block.
pub struct Observer(pub Box<dyn Fn(EngineEvent) + Send + Sync>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}
