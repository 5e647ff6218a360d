//! One event loop of the simulated front end, with its inbox of gathered requests.
//!
//! Rules and bounds are those of `crates/serving/engine/src/inbox.rs` and its `limits.rs`.

use std::collections::VecDeque;

/// Requests are gathered while their total compute time is below this, nanoseconds ...
pub(super) const COALESCED_COMPUTE_MAX: u64 = 20_000;

/// ... for no longer than this, nanoseconds ...
const COALESCE_DELAY_MAX: u64 = 100_000;

/// ... and at most this many.
const COALESCED_REQUESTS_MAX: usize = 256;

/// A task of an event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Read(usize),
    Collect,
    Timer,
    Write(usize),
}

#[derive(Debug, Default)]
pub(super) struct EventLoop {
    /// Tasks that became ready since the last poll, in order.
    ready: Vec<Task>,
    /// Ready tasks found by the last poll.
    tasks: VecDeque<Task>,
    /// The task in progress.
    pub(super) current: Option<Task>,
    pub(super) is_awake: bool,
    inbox: Inbox,
}

#[derive(Debug, Default)]
struct Inbox {
    requests: Vec<usize>,
    /// Their expected compute time, nanoseconds.
    compute: u64,
    since: u64,
}

impl EventLoop {
    /// Adds a ready event. A descriptor that is already readable is not added again.
    pub(super) fn add_ready(&mut self, task: Task) {
        let is_descriptor = matches!(task, Task::Collect | Task::Timer);
        if !(is_descriptor && self.ready.contains(&task)) {
            self.ready.push(task);
        }
    }

    /// Adds a task that results from the loop's own work.
    pub(super) fn add_task(&mut self, task: Task) {
        self.tasks.push_back(task);
    }

    /// The next task of the last poll.
    pub(super) fn next_task(&mut self) -> Option<Task> {
        self.tasks.pop_front()
    }

    /// Polls for ready tasks.
    pub(super) fn poll(&mut self) {
        self.tasks.extend(self.ready.drain(..));
    }

    /// Adds a request with this compute time; returns whether it may wait for others. `row` is 0 if
    /// the compute time is unknown.
    pub(super) fn gather(
        &mut self,
        request: usize,
        compute: u64,
        has_idle_worker: bool,
        now: u64,
    ) -> bool {
        let inbox = &mut self.inbox;
        if inbox.requests.is_empty() {
            (inbox.since, inbox.compute) = (now, 0);
        }
        inbox.compute = inbox.compute.saturating_add(compute);
        inbox.requests.push(request);
        let is_small = compute > 0 && inbox.compute <= COALESCED_COMPUTE_MAX;
        (is_small || !has_idle_worker)
            && inbox.requests.len() < COALESCED_REQUESTS_MAX
            && now.saturating_sub(inbox.since) < COALESCE_DELAY_MAX
    }

    pub(super) fn has_gathered(&self) -> bool {
        !self.inbox.requests.is_empty()
    }

    pub(super) fn drain_into(&mut self, requests: &mut Vec<usize>) {
        requests.append(&mut self.inbox.requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_wait_and_larger_ones_only_while_no_worker_is_idle() {
        let mut event_loop = EventLoop::default();
        let mut gathered = Vec::new();
        assert!(event_loop.gather(0, 15_000, true, 0));
        assert!(!event_loop.gather(1, 6_000, true, 0), "more than 20 us");
        event_loop.drain_into(&mut gathered);
        assert_eq!(gathered, [0, 1]);
        assert!(!event_loop.gather(2, 0, true, 0), "nothing is known");
        event_loop.drain_into(&mut gathered);
        assert!(event_loop.gather(3, 1_000_000, false, 0));
        assert!(!event_loop.gather(4, 1, false, COALESCE_DELAY_MAX));
        assert!(event_loop.has_gathered());
    }

    #[test]
    fn tasks_that_become_ready_run_after_the_next_poll() {
        let mut event_loop = EventLoop::default();
        event_loop.add_ready(Task::Collect);
        event_loop.add_ready(Task::Read(0));
        event_loop.add_ready(Task::Collect);
        assert_eq!(event_loop.next_task(), None);
        event_loop.poll();
        event_loop.add_ready(Task::Read(1));
        event_loop.add_task(Task::Write(0));
        let seen: Vec<_> = std::iter::from_fn(|| event_loop.next_task()).collect();
        assert_eq!(seen, [Task::Collect, Task::Read(0), Task::Write(0)]);
    }
}
