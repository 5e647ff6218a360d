//! A trial of placements on the running server, like the agent's trial on a pod.

use std::collections::BTreeSet;
use std::time::Instant;

use albacore_os::{HostRoot, Pid};
use albacore_placer::{SubjectId, SubjectState, mapping_hash, read_workers};
use albacore_plan::{Enforcement, PlacementMethod, SubjectPolicy};
use albacore_trial::{SubjectSnapshot, SubjectTrial, TrialRun, TrialSpec, TrialState};

use super::LocalRun;
use super::restart::PlacementState;
use crate::events;

/// The trial of one server process; the next process gets its own trial.
pub(super) struct ServerTrial {
    subject: SubjectId,
    trial: SubjectTrial,
    /// The verdict that was reported.
    reported: Option<String>,
}

impl LocalRun {
    /// The policy of the file, with the arm of the trial's current window or the arm that the trial
    /// decided for.
    pub(super) fn policy_in_force(&self) -> SubjectPolicy {
        let mut policy = self.deployment.policy.clone();
        if let Some(of) = &self.trial {
            of.trial.run().state().arm().apply(&mut policy);
        }
        policy
    }

    /// Starts the trial requested in the file, and takes the samples that are due.
    pub(super) fn advance_trial(&mut self, states: &[SubjectState]) {
        // read in every iteration: a report received before a sample is due is not used for it
        let live_settings = self.live_settings.as_mut();
        let latency = live_settings.and_then(|settings| settings.latest_latency());
        let subject = match &self.placement {
            PlacementState::Active(subject) => *subject,
            PlacementState::Requested(..) | PlacementState::Inactive => {
                self.trial = None;
                return;
            }
        };
        let known = self.trial.take().filter(|of| of.subject == subject);
        let Some(mut of) = known.or_else(|| self.begin_trial(subject)) else {
            return;
        };
        let mut policy = self.deployment.policy.clone();
        of.trial.run().state().arm().apply(&mut policy);
        let read = || {
            let state = states.iter().find(|state| state.subject == subject)?;
            let pids: BTreeSet<Pid> = self.rows.iter().filter_map(|row| row.pid).collect();
            let pids: Vec<Pid> = pids.into_iter().collect();
            Some(SubjectSnapshot {
                usage: read_workers(&HostRoot::live(), &pids, Some(state))?,
                mapping: mapping_hash(&policy, &self.rows, state),
            })
        };
        let is_changed = of.trial.advance(latency.as_ref(), read, Instant::now());
        self.set_report_period(&of.trial);
        if is_changed {
            self.report_verdict(&mut of);
        }
        self.trial = Some(of);
        if self.policy_in_force() != policy {
            self.set_policy_in_force(subject);
        }
    }

    /// Starts the trial once the server is ready and all of its threads exist.
    fn begin_trial(&mut self, subject: SubjectId) -> Option<ServerTrial> {
        let spec = self.trial_spec()?;
        if self.ready_since.is_none() || !self.has_all_threads() {
            return None;
        }
        let (rounds, seconds) = (spec.rounds, spec.window.as_secs_f64());
        self.note(&format!(
            "a trial of placements begins: at most {rounds} rounds of a window of {seconds} s for each"
        ));
        let seed = u64::from(self.child.pid().0.unsigned_abs());
        let run = TrialRun::new(spec, &self.deployment.policy, seed, Instant::now());
        Some(ServerTrial {
            subject,
            trial: SubjectTrial::new(run),
            reported: None,
        })
    }

    fn trial_spec(&self) -> Option<TrialSpec> {
        let policy = &self.deployment.policy;
        let is_placed =
            policy.enforcement != Enforcement::Observe && policy.placement != PlacementMethod::None;
        self.deployment.trial.clone().filter(|_| is_placed)
    }

    fn set_report_period(&mut self, trial: &SubjectTrial) {
        if let (Some(settings), albacore_api::Server::BuiltIn(server)) =
            (&mut self.live_settings, &self.deployment.server)
        {
            settings.set_report_period(server, trial.report_period());
        }
    }

    /// Reports a verdict once, or the reason why the trial cannot reach one.
    fn report_verdict(&mut self, of: &mut ServerTrial) {
        let run = of.trial.run();
        let text = match run.state() {
            TrialState::Over(verdict) => Some(verdict.text),
            TrialState::Window(_) => run.progress().filter(|_| run.is_missing_reports()),
        };
        if of.reported == text {
            return;
        }
        match (&text, run.state()) {
            (Some(_), TrialState::Over(verdict)) => {
                self.output.event(&events::trial_decided(&verdict));
            }
            (Some(text), TrialState::Window(_)) => self.note(text),
            (None, _) => {}
        }
        of.reported = text;
    }

    /// Ends the trial because the file changed: the policy of the file is in force.
    pub(super) fn end_trial(&mut self) {
        if self.trial.take().is_none() {
            return;
        }
        if let PlacementState::Active(subject) = &self.placement {
            let subject = *subject;
            self.set_policy_in_force(subject);
        }
    }

    fn set_policy_in_force(&mut self, subject: SubjectId) {
        let policy = self.policy_in_force();
        match self.placer.handle.set_policy(subject, policy) {
            Ok(_) => {
                self.is_placed_reported = false;
                self.is_policy_pending = true;
            }
            Err(error) => self.note(&format!("the policy was not changed: {error}")),
        }
    }
}
