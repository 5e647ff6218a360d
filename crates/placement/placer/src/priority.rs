//! Priority of the thread that drives a placer.
//!
//! A worker that is spawned while every cpu is busy computes on the wrong cpu until the placer
//! itself gets a cpu. Measured with two workers on two busy cpus: 10 to 40 ms from naming to pin at
//! the default priority, of which the placer used well under one.

use albacore_os::PriorityChange;

use crate::Report;

/// Raises the priority of the calling thread, which should drive a placer; reports a failure.
pub fn raise_thread_priority(report: &mut dyn FnMut(&Report)) {
    match albacore_os::raise_thread_priority() {
        PriorityChange::Raised => {}
        PriorityChange::SliceOnly | PriorityChange::Refused => report(&Report::UsualPriority),
    }
}
