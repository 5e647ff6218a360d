//! What the supervisor and its processes tell each other; descriptors travel beside the text.

use serde::{Deserialize, Serialize};

use albacore_os::Exit;

/// What a front tells the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrontMessage {
    /// Keep the descriptors of this message for other fronts, in place of those before.
    Keep {
        key: String,
    },
    Forget {
        key: String,
    },
    /// A standby can serve at once.
    Prepared,
    /// Every worker is up and every model loaded.
    Ready,
    /// Why this front ends.
    Failed {
        reason: String,
    },
}

/// What the supervisor tells a front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorMessage {
    /// What the serving front keeps has changed; its descriptors come with the message.
    Kept {
        key: String,
    },
    Forgotten {
        key: String,
    },
    /// Everything was sent that had been kept when this front was started.
    AllKept,
    /// Serve from now on.
    Serve {
        predecessor: Option<Predecessor>,
        /// A front of this server has been ready before.
        was_ready: bool,
    },
    /// Answer what was accepted, and end.
    Drain,
    /// The same, because a newer front serves.
    Retire,
    Status(Status),
}

/// A front that died while it served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    pub pid: i32,
    /// How it ended.
    pub cause: String,
    /// Its connections, which were reset.
    pub connections: u64,
}

/// What the supervisor counts since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Fronts that died while they served.
    pub front_deaths: u64,
    /// Connections that were reset by that.
    pub connections_reset: u64,
    /// Fronts that a prepared standby replaced.
    pub takeovers: u64,
    /// Binaries that replaced another by SIGUSR2.
    pub upgrades: u64,
    pub standby: StandbyState,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StandbyState {
    /// It is being started, or will be soon.
    #[default]
    Starting,
    Ready,
    /// It cannot start; that is tried again.
    Failed {
        reason: String,
    },
}

/// What a front asks of the host of its workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerRequest {
    /// Start a worker with these arguments and with the numbers of the first two descriptors of
    /// this message, which it inherits: its ring and its end of its channel. The third is the
    /// front's end.
    Start {
        worker: usize,
        arguments: Vec<String>,
    },
    /// Kill it, if it is this process.
    Kill { worker: usize, pid: i32 },
}

/// What the host of the workers tells the serving front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerEvent {
    /// A worker of another front: its ring, and the front's end of its channel.
    Adopted {
        worker: usize,
        pid: i32,
    },
    /// Every worker that runs was named.
    Begin,
    Started {
        worker: usize,
        pid: i32,
    },
    NotStarted {
        worker: usize,
        cause: String,
    },
    /// It is gone and writes nothing more.
    Exited {
        worker: usize,
        pid: i32,
        exit: WorkerExit,
    },
}

/// How a worker ended.
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
