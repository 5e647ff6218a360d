//! Searches longer, in the background, for plans without proof of optimality, one after the other.

use albacore_os::OsError;

use super::Placer;
use crate::subject::PassContext;
use crate::{PlacerError, Report};

impl Placer {
    /// Adopts the result of the background search and starts the next one.
    pub(super) fn improve(&mut self, report: &mut dyn FnMut(&Report)) -> Result<(), PlacerError> {
        if let Some(improvement) = self.improver.take() {
            let now = self.reader.clock.now()?;
            // The problem was solved before, so it is not rejected now.
            let found = improvement.found?;
            if let Some(subject) = self.subjects.get_mut(&improvement.subject) {
                let is_warm = subject.is_warm(now);
                let problem = &improvement.problem;
                if subject.solver.take_improvement(problem, found, is_warm) {
                    subject.schedule.request();
                    subject.report_planned(
                        improvement.took,
                        &mut PassContext {
                            reader: &self.reader,
                            machine: &self.machine,
                            may_write: true,
                            figures: &mut self.figures,
                            report,
                        },
                    );
                }
            }
        }
        if !self.improver.is_idle() {
            return Ok(());
        }
        let mut subjects = self.subjects.iter_mut();
        let next =
            subjects.find_map(|(&id, subject)| Some((id, subject.solver.take_improvable()?)));
        let Some((id, problem)) = next else {
            return Ok(());
        };
        let wake = self.controls.handle.wake.clone();
        self.improver.start(id, problem, wake).map_err(|source| {
            PlacerError::Os(OsError::Call {
                call: "clone",
                source,
            })
        })
    }
}
