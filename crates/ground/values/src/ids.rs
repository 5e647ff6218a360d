//! Process and thread ids of the Linux kernel.

/// A process id, in the pid namespace of the /proc that is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pid(pub i32);

/// A thread id, in the same namespace. The first thread of a process has the tid of its pid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tid(pub i32);

impl Pid {
    /// The id of the process's first thread.
    pub fn first_thread(self) -> Tid {
        Tid(self.0)
    }
}
