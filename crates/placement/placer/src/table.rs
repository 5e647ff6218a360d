//! The state of every slot and event loop, for a live table.

use albacore_os::{Pid, Tid};
use albacore_solver::Slot;
use albacore_topology::CpuSet;

use crate::SubjectId;

/// The state of a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SlotState {
    /// The mask was read and is as planned.
    Verified,
    /// The mask was read and is not as planned.
    Drifted,
    /// The mask is not as planned and left as it is for a while: another program changed it too
    /// often.
    BackedOff,
    /// No thread fills the slot now.
    Missing,
    /// Nothing is planned: the kernel places.
    Unplaced,
}

impl SlotState {
    /// The state in snake_case, as in JSON.
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

/// For how much of the time a thread runs or waits for a cpu.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LoadClass {
    /// At most a quarter, or less than a half since it was that.
    Cool,
    /// At least a half, or more than a quarter since it was that.
    Hot,
}

impl LoadClass {
    /// The class in snake_case, as in JSON.
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
    /// The worker's process, if it lives.
    pub pid: Option<Pid>,
    /// The thread, if it lives.
    pub tid: Option<Tid>,
    /// The planned mask; `None` if nothing is planned.
    pub planned: Option<CpuSet>,
    /// The mask when it was last read.
    pub actual: Option<CpuSet>,
    /// Microseconds since the mask was last read and found as planned.
    pub verified_micros_ago: Option<u64>,
    /// How busy its threads were by the weights in force; `None` until that was measured.
    pub load: Option<LoadClass>,
    /// How often the worker was replaced.
    pub respawns: u32,
    /// The state of the slot.
    pub state: SlotState,
}

/// An event loop of the front end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontRow {
    /// Its number within its process.
    pub index: u16,
    pub pid: Pid,
    pub tid: Tid,
    pub planned: CpuSet,
    /// The mask when it was last read.
    pub actual: CpuSet,
}

impl FrontRow {
    /// Whether the mask was read back as planned.
    pub fn is_verified(&self) -> bool {
        self.actual == self.planned
    }
}
