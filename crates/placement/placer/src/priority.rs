//! Priority of the thread that drives a placer.
//!
//! A worker that is spawned while every cpu is busy computes on the wrong cpu until the placer gets
//! one itself. Measured with two workers on two busy cpus: 10 to 40 ms from name to pin at the
//! usual priority, of which the placer needed well under one.

use albacore_os::PriorityChange;

use crate::Report;

/// Raises the priority of the calling thread, which is to drive a placer; reports if that fails.
pub fn raise_thread_priority(report: &mut dyn FnMut(&Report)) {
    match albacore_os::raise_thread_priority() {
        PriorityChange::Raised => {}
        PriorityChange::SliceOnly | PriorityChange::Refused => report(&Report::UsualPriority),
    }
}
