//! What the engine reports to its owner as it happens.

/// A change of a worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// Called with each [`EngineEvent`], from the supervisor's thread; must not block.
pub struct Observer(pub Box<dyn Fn(EngineEvent) + Send + Sync>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}
