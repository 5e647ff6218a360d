//! Handles the control messages of other threads.

use super::{CONTROL_KEY, Placer};
use crate::limits::CONTROLS_MAX;
use crate::report::Report;
use crate::{Control, SubjectId};

use albacore_os::Key;

impl Placer {
    pub(super) fn handle_controls(&mut self, keys: &[Key], report: &mut dyn FnMut(&Report)) {
        if !keys.contains(&CONTROL_KEY) {
            return;
        }
        self.controls.handle.wake.clear();
        let controls = self.controls.receiver.try_iter();
        // bound: the queue holds CONTROLS_MAX
        for control in controls.take(CONTROLS_MAX).collect::<Vec<_>>() {
            self.handle_control(control, report);
        }
    }

    fn handle_control(&mut self, control: Control, report: &mut dyn FnMut(&Report)) {
        // A reply whose receiver is gone is dropped.
        match control {
            Control::Add { config, reply } => drop(reply.try_send(self.add_subject(&config))),
            Control::SetPolicy(id, policy) => {
                // A subject that ended meanwhile has no policy to set; its end was reported.
                if self.set_policy(id, policy).is_ok() {
                    report(&Report::PolicySet { subject: id });
                }
            }
            Control::RetryNow(id) => self.retry_now(id),
            Control::Remove { subject, reply } => {
                let restored = self.remove(subject, report);
                if let Some(reply) = reply {
                    drop(reply.try_send(restored));
                }
            }
            Control::Table { reply } => drop(reply.try_send(self.table())),
            Control::States { reply } => drop(reply.try_send(self.states())),
            Control::Figures { reply } => drop(reply.try_send(self.figures().clone())),
            Control::Stop => self.is_stopped = true,
        }
    }

    fn remove(&mut self, id: SubjectId, report: &mut dyn FnMut(&Report)) -> crate::Restored {
        let restored = self.restore_one(id, report);
        self.subjects.remove(&id);
        report(&Report::Restored(restored.clone()));
        restored
    }
}
