//! Improves in the background a plan that a solve within its budget left unproven.
//!
//! A thread of the lowest priority searches once more, with a larger budget; the loop goes on and
//! takes the answer when it is there, if the problem is still the same and the gain is worth the
//! moves. One search at a time, one for each problem. Answers of joint problems are not improved:
//! their search from mappings in force is local, whatever its budget.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use albacore_os::{Wake, lower_thread_priority};
use albacore_solver::{Problem, ProblemError, Solution, WorkBudget, improve};

use crate::SubjectId;
use crate::limits::IMPROVEMENT_BUDGET;

/// The search that runs, if one does.
#[derive(Debug, Default)]
pub(crate) struct Improver {
    running: Option<JoinHandle<Improvement>>,
}

/// What a search found.
#[derive(Debug)]
pub(crate) struct Improvement {
    pub(crate) subject: SubjectId,
    /// With the mapping that was in force at its start.
    pub(crate) problem: Problem,
    pub(crate) found: Result<Solution, ProblemError>,
    pub(crate) took: Duration,
}

impl Improver {
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// Begins a search; `wake` is called near its end, and the loop turns often enough to find the
    /// thread ended.
    ///
    /// # Errors
    /// The system makes no thread.
    pub(crate) fn start(
        &mut self,
        subject: SubjectId,
        problem: Problem,
        wake: Wake,
    ) -> std::io::Result<()> {
        let search = move || {
            // without it the search only takes longer to end
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

    /// The answer of a search that has ended; `None` while it runs, and if it panicked.
    pub(crate) fn take(&mut self) -> Option<Improvement> {
        let ended = self.running.take_if(|thread| thread.is_finished())?;
        ended.join().ok()
    }
}
