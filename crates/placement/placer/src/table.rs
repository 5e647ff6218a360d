//! State of every slot and event loop, for a live table.

use albacore_os::{Pid, Tid};
use albacore_solver::Slot;
use albacore_topology::CpuSet;

use crate::SubjectId;

/// State of a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SlotState {
    /// The mask was read and is as planned.
    Verified,
    /// The mask was read and differs from the planned one.
    Drifted,
    /// The mask differs and is not repaired for a while, because another program changed it too
    /// often.
    BackedOff,
    /// No thread currently fills the slot.
    Missing,
    /// Nothing is planned: the kernel places the threads.
    Unplaced,
}

impl SlotState {
    /// The name of the state in snake_case, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Drifted => "drifted",
            Self::BackedOff => "backed_off",
            Self::Missing => "missing",
            Self::Unplaced => "unplaced",
        }
    }
}

/// Load class by the fraction of time for which a thread is running or waiting in a run queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LoadClass {
    /// At most a quarter of the time; the class is kept below a half (hysteresis).
    Cool,
    /// At least half of the time; the class is kept above a quarter (hysteresis).
    Hot,
}

impl LoadClass {
    /// The name of the class in snake_case, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cool => "cool",
            Self::Hot => "hot",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotRow {
    pub subject: SubjectId,
    pub slot: Slot,
    /// The live process of the worker.
    pub pid: Option<Pid>,
    /// The live thread.
    pub tid: Option<Tid>,
    /// The planned mask; `None` if nothing is planned.
    pub planned: Option<CpuSet>,
    /// The mask as last read.
    pub actual: Option<CpuSet>,
    /// Microseconds since the mask was last read and found as planned.
    pub verified_micros_ago: Option<u64>,
    /// Load class of the thread according to the weights in force; `None` until measured.
    pub load: Option<LoadClass>,
    /// How often the worker was replaced.
    pub respawns: u32,
    pub state: SlotState,
}

/// State of an event loop of the front end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontRow {
    /// Its index within its process.
    pub index: u16,
    pub pid: Pid,
    pub tid: Tid,
    pub planned: CpuSet,
    /// The mask as last read.
    pub actual: CpuSet,
}

impl FrontRow {
    /// True if the mask was read back as planned.
    pub fn is_verified(&self) -> bool {
        self.actual == self.planned
    }
}
