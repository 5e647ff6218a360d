//! Events that the engine reports to its owner.

use albacore_batching::auto::Choice;

use crate::Kind;

/// An event that the owner may report.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineEvent {
    WorkerStarted {
        worker: usize,
        pid: i32,
    },
    /// The process exited without a stop command; it is respawned.
    WorkerExited {
        worker: usize,
        pid: i32,
        /// Exit status, for example `signal 9`.
        cause: String,
    },
    /// Policy `auto` chose whether batches of a model and kind are deferred.
    BatchingChosen {
        model: String,
        /// The most expensive output kind of their requests.
        kind: Kind,
        choice: Choice,
    },
}

/// Called with each [`EngineEvent`], from any thread; must not block.
pub struct Observer(pub Box<dyn Fn(EngineEvent) + Send + Sync>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}
