//! Background search for a better mapping when a solve could not prove optimality within its
//! budget.
//!
//! A thread of the lowest priority searches again with a larger budget. The loop continues
//! meanwhile and adopts the result if the problem is unchanged and the gain is worth the moves.
//! There is one search at a time, and one per problem. Solutions of joint problems are not
//! improved, because their search from the current mappings is local, whatever its budget.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use albacore_os::{Waker, lower_thread_priority};
use albacore_solver::{Problem, ProblemError, Solution, WorkBudget, improve};

use crate::SubjectId;
use crate::limits::IMPROVEMENT_BUDGET;

/// The running search, if any.
#[derive(Debug, Default)]
pub(crate) struct Improver {
    running: Option<JoinHandle<Improvement>>,
}

/// Result of a search.
#[derive(Debug)]
pub(crate) struct Improvement {
    pub(crate) subject: SubjectId,
    /// Includes the mapping in force at its start.
    pub(crate) problem: Problem,
    pub(crate) found: Result<Solution, ProblemError>,
    pub(crate) took: Duration,
}

impl Improver {
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// Starts a search. `wake` is called shortly before the thread exits; the loop runs often
    /// enough to notice the exit.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(crate) fn start(
        &mut self,
        subject: SubjectId,
        problem: Problem,
        wake: Waker,
    ) -> std::io::Result<()> {
        let search = move || {
            // On failure the search only takes longer.
            let _ = lower_thread_priority();
            let start = Instant::now();
            let mut budget = WorkBudget::of_time(IMPROVEMENT_BUDGET);
            let found = improve(&problem, &mut budget);
            let took = start.elapsed();
            wake.wake();
            Improvement {
                subject,
                problem,
                found,
                took,
            }
        };
        let thread = std::thread::Builder::new().name("improve".to_owned());
        self.running = Some(thread.spawn(search)?);
        Ok(())
    }

    /// The result of a finished search; `None` while it runs, or if it panicked.
    pub(crate) fn take(&mut self) -> Option<Improvement> {
        let ended = self.running.take_if(|thread| thread.is_finished())?;
        ended.join().ok()
    }
}
