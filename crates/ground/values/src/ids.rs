//! Process and thread ids of the Linux kernel.

/// Process id in the PID namespace of the procfs mount that is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pid(pub i32);

/// Thread id in the same namespace. The tid of a process's main thread equals its pid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tid(pub i32);

impl Pid {
    /// The id of the main thread.
    pub fn first_thread(self) -> Tid {
        Tid(self.0)
    }
}
