//! Handles control messages of other threads.

use super::{CONTROL_KEY, Placer};
use crate::limits::CONTROLS_MAX;
use crate::report::{Report, RestoreSummary};
use crate::{ControlRequest, SubjectId};

use albacore_os::PollKey;

impl Placer {
    pub(super) fn handle_controls(&mut self, keys: &[PollKey], report: &mut dyn FnMut(&Report)) {
        if !keys.contains(&CONTROL_KEY) {
            return;
        }
        self.controls.handle.wake.clear();
        let controls = self.controls.receiver.try_iter();
        // bound: the queue holds CONTROLS_MAX
        for control in controls.take(CONTROLS_MAX).collect::<Vec<ControlRequest>>() {
            control(self, report);
        }
    }

    /// Ends the loop.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Restores the masks of a subject and removes it.
    pub(crate) fn remove(
        &mut self,
        id: SubjectId,
        report: &mut dyn FnMut(&Report),
    ) -> RestoreSummary {
        let restored = self.restore_one(id, report);
        self.subjects.remove(&id);
        report(&Report::Restored(restored.clone()));
        restored
    }
}
