//! Edits of the deployment's file during a run.

use albacore_api::Server;
use albacore_plan::SubjectPolicy;

use super::restart::PlacementState;
use super::{LocalRun, read};
use crate::events;

impl LocalRun {
    /// Applies the edits that a running server supports, and reports the others.
    pub(super) fn reload_file(&mut self) {
        let now = match read(&self.options.file) {
            Ok(now) => now,
            Err(failure) => {
                let text = format!("the edited file was not applied: {}", failure.text());
                return self.note(&text);
            }
        };
        self.apply_server_settings(now.server);
        self.report_notices(now.notices);
        self.end_back_off();
        if now.trial != self.deployment.trial || now.policy != self.deployment.policy {
            self.deployment.trial = now.trial;
            self.end_trial();
        }
        self.apply_policy(now.policy);
    }

    /// Reports notices that are new in the edited file.
    fn report_notices(&mut self, notices: Vec<String>) {
        for notice in &notices {
            if !self.deployment.notices.contains(notice) {
                self.note(notice);
            }
        }
        self.deployment.notices = notices;
    }

    /// Ends the backoff of threads whose masks another process keeps changing.
    fn end_back_off(&mut self) {
        if let Err(error) = self.placer.handle.retry_now(self.placer.subject) {
            self.note(&format!(
                "the masks of threads in back-off were not written again: {error}"
            ));
        }
    }

    /// Applies an edited policy, except workers and threads, which require a restart.
    fn apply_policy(&mut self, policy: SubjectPolicy) {
        let before = &self.deployment.policy;
        let policy = SubjectPolicy {
            workers: before.workers,
            threads: before.threads,
            ..policy
        };
        if policy == *before {
            return;
        }
        let is_pending = match &self.placement {
            PlacementState::Active(subject) => {
                if let Err(error) = self.placer.handle.set_policy(*subject, policy.clone()) {
                    return self.note(&format!("the policy was not changed: {error}"));
                }
                true
            }
            // The next server process is added with this policy.
            PlacementState::Requested(..) | PlacementState::Inactive => false,
        };
        self.deployment.policy = policy;
        self.is_placed_reported = false;
        self.is_policy_pending = is_pending;
        self.output
            .event(&events::policy_changed(&self.deployment.policy));
    }

    /// Applies the settings that a running built-in server can change: models, objectives, batching
    /// and queue.
    fn apply_server_settings(&mut self, now: Server) {
        if now == self.deployment.server {
            return;
        }
        let changed = match (now, &mut self.deployment.server, &mut self.live_settings) {
            (Server::BuiltIn(now), Server::BuiltIn(before), Some(live_settings))
                if now.is_same_process(before) =>
            {
                live_settings.change(&now).map(|()| *before = now)
            }
            _ => Err(
                "it changes workers, threads, front, environment or command: that takes effect when \
                 albacore run is started again"
                    .to_owned(),
            ),
        };
        if let Err(problem) = changed {
            self.note(&format!(
                "the edit was not applied to the server: {problem}"
            ));
        }
    }
}
