//! Messages between the supervisor and its processes; descriptors are passed with the message.
//!
//! The two sides may be of different versions during an upgrade: the names in JSON do not change.

use serde::{Deserialize, Serialize};

use albacore_os::Exit;

/// A message from a front to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrontMessage {
    /// Store the descriptors of this message for other fronts, replacing previous ones.
    #[serde(rename = "Keep")]
    Store { key: String },
    #[serde(rename = "Forget")]
    Remove { key: String },
    /// A standby is prepared to serve.
    Prepared,
    /// Every worker is up, and every model is loaded.
    Ready,
    /// The reason why this front exits.
    Failed { reason: String },
}

/// A message from the supervisor to a front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorMessage {
    /// Descriptors stored by the serving front have changed; the new ones are passed with the
    /// message.
    #[serde(rename = "Kept")]
    Stored {
        key: String,
    },
    #[serde(rename = "Forgotten")]
    Removed {
        key: String,
    },
    /// All descriptors were sent that were stored when this front started.
    #[serde(rename = "AllKept")]
    AllStored,
    /// Serve from now on.
    Serve {
        predecessor: Option<Predecessor>,
        /// Whether a front of this server was ready before.
        was_ready: bool,
    },
    /// Answer accepted requests, then exit.
    Drain,
    /// The same, because a newer front serves.
    Retire,
    Status(Status),
}

/// A front that died while it served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    pub pid: i32,
    /// Exit status.
    pub cause: String,
    /// Number of its connections, which were reset.
    pub connections: u64,
}

/// Counters of the supervisor since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Fronts that died while they served.
    pub front_deaths: u64,
    /// Connections that were reset by these deaths.
    pub connections_reset: u64,
    /// Fronts that were replaced by a prepared standby.
    pub takeovers: u64,
    /// Upgrades of the binary by SIGUSR2.
    pub upgrades: u64,
    pub standby: StandbyState,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StandbyState {
    /// It is starting, or will be started soon.
    #[default]
    Starting,
    Ready,
    /// It cannot start; the start is retried.
    Failed {
        reason: String,
    },
}

/// A request of a front to the worker host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerRequest {
    /// Start a worker with these arguments, followed by the numbers of the first two descriptors of
    /// this message, which it inherits: its ring and its end of its channel. The third descriptor
    /// is the front's end.
    Start {
        worker: usize,
        arguments: Vec<String>,
    },
    /// Kill it, if it is this process.
    Kill { worker: usize, pid: i32 },
}

/// An event that the worker host reports to the serving front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerEvent {
    /// A worker started by a previous front: its ring, and the front's end of its channel.
    Adopted {
        worker: usize,
        pid: i32,
    },
    /// All running workers were reported.
    Begin,
    Started {
        worker: usize,
        pid: i32,
    },
    NotStarted {
        worker: usize,
        cause: String,
    },
    /// It has exited and writes no more.
    Exited {
        worker: usize,
        pid: i32,
        exit: WorkerExit,
    },
}

/// Exit status of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerExit {
    Code(i32),
    Signal(i32),
}

impl From<Exit> for WorkerExit {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::Code(code),
            Exit::Signal(signal) => Self::Signal(signal),
        }
    }
}

impl From<WorkerExit> for Exit {
    fn from(exit: WorkerExit) -> Self {
        match exit {
            WorkerExit::Code(code) => Self::Code(code),
            WorkerExit::Signal(signal) => Self::Signal(signal),
        }
    }
}
