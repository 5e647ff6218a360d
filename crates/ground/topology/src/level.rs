//! Levels of the topology tree, from one cpu to the whole machine.

use crate::{Cpu, Distances};

/// The nearest domain that two cpus share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    Cpu,
    /// A core.
    L1,
    L2,
    L3,
    /// A NUMA node.
    Numa,
    Package,
    Machine,
}

impl Level {
    /// From nearest to farthest.
    pub const ALL: [Self; 7] = [
        Self::Cpu,
        Self::L1,
        Self::L2,
        Self::L3,
        Self::Numa,
        Self::Package,
        Self::Machine,
    ];

    /// The nearest shared level of two cpus of one machine.
    #[inline]
    pub fn of(a: &Cpu, b: &Cpu) -> Self {
        if a.id == b.id {
            Self::Cpu
        } else if a.core == b.core {
            Self::L1
        } else if a.l2 == b.l2 {
            Self::L2
        } else if a.l3 == b.l3 {
            Self::L3
        } else if a.numa == b.numa {
            Self::Numa
        } else if a.package == b.package {
            Self::Package
        } else {
            Self::Machine
        }
    }

    /// Name of the level in lists and files of distances.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::L1 => "l1",
            Self::L2 => "l2",
            Self::L3 => "l3",
            Self::Numa => "numa",
            Self::Package => "package",
            Self::Machine => "machine",
        }
    }
}

impl Distances {
    /// Distance in clock cycles of two cpus whose nearest shared domain is `level`.
    #[inline]
    pub const fn at(&self, level: Level) -> u32 {
        match level {
            Level::Cpu => self.cpu,
            Level::L1 => self.l1,
            Level::L2 => self.l2,
            Level::L3 => self.l3,
            Level::Numa => self.numa,
            Level::Package => self.package,
            Level::Machine => self.machine,
        }
    }
}
