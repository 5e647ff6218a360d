//! Restarts a server that exited: terminates its orphans, starts it with the same arguments and
//! addresses, and places it again.

use std::time::Instant;

use albacore_api::Server;
use albacore_command::{Failure, sentence};
use albacore_os::Pid;
use albacore_placer::{
    ControlError, ControlReply, FrontRow, PlacerError, SlotRow, SubjectConfig, SubjectId,
    SubjectState,
};
use albacore_plan::{ServerKind, SubjectPolicy};
use serde_json::Value;

use super::{LocalRun, RunEnd};
use crate::message::Message;
use crate::restart_policy::FAILED_STARTS_MAX;
use crate::server::ServerProcess;
use crate::{events, orphans};

/// Whether the placer manages the current server process.
pub(super) enum PlacementState {
    /// The placer manages this subject.
    Active(SubjectId),
    /// The request with this policy has not been answered yet.
    Requested(ControlReply<Result<SubjectId, PlacerError>>, SubjectPolicy),
    /// No server process is running, or it cannot be placed.
    Inactive,
}

/// The server process as a subject of the placer.
pub(super) fn subject(server: &Server, root: Pid, policy: SubjectPolicy) -> SubjectConfig {
    SubjectConfig {
        root,
        cgroup: None,
        server_kind: match server {
            Server::BuiltIn(_) => ServerKind::Named,
            Server::Own(_) => ServerKind::PreFork,
        },
        policy,
    }
}

impl LocalRun {
    /// Records that the server is ready: at its own event or, for a user's own server, once all of
    /// its threads exist.
    pub(super) fn mark_ready(&mut self) {
        if self.ready_since.is_none() {
            self.ready_since = Some(Instant::now());
            self.was_ready = true;
        }
    }

    /// Stores the addresses of the first server process; later ones listen on the same addresses.
    pub(super) fn keep_addresses(&mut self, listening: &Value) {
        let address = |field: &str| listening[field].as_str().and_then(|text| text.parse().ok());
        if let (Some(http), Some(grpc)) = (address("http"), address("grpc")) {
            (self.options.http, self.options.grpc) = (http, grpc);
        }
    }

    /// Handles an exit that was not requested. Returns the end of the run, unless the server is to
    /// be restarted.
    pub(super) fn handle_server_exit(
        &mut self,
        status: std::io::Result<std::process::ExitStatus>,
    ) -> Option<RunEnd> {
        let failure = self.child.exit_failure(&status);
        let how = match &status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        self.child.record_exit(status);
        if !self.was_ready {
            return Some(RunEnd::ServerExited(failure));
        }
        self.schedule_restart(&how)
    }

    /// Schedules a restart after a pause, or ends the run. `how` is the exit status of the last
    /// process, or why it could not be started.
    fn schedule_restart(&mut self, how: &str) -> Option<RunEnd> {
        let ready_for = self.ready_since.take().map(|since| since.elapsed());
        self.is_down = true;
        self.is_placed_reported = false;
        self.is_policy_pending = false;
        self.rows.clear();
        if let PlacementState::Active(subject) =
            std::mem::replace(&mut self.placement, PlacementState::Inactive)
        {
            // The placer detects the exit itself; the reply is not needed.
            drop(self.placer.handle.remove(subject));
        }
        let Some(pause) = self.restarts.pause_after(ready_for) else {
            return Some(RunEnd::ServerExited(Failure::Failed(format!(
                "the server was started {FAILED_STARTS_MAX} times and ended each time before it was ready, the last \
                 time with {how}: see its messages above; correct the cause, then start albacore run again"
            ))));
        };
        let ended = events::server_ended(self.child.pid(), how, pause);
        self.output.event(&ended);
        let is_kept = self
            .live_settings
            .as_ref()
            .map(crate::live_settings::LiveSettings::recognizer);
        let messages = self.sender.clone();
        std::thread::spawn(move || {
            // Workers of the previous process would use CPU time and memory beside the new ones.
            orphans::terminate(|pid| is_kept.as_ref().is_some_and(|is_kept| is_kept(pid)));
            std::thread::sleep(pause);
            // The send fails if the run has ended.
            drop(messages.send(Message::StartDue));
        });
        None
    }

    /// Restarts the server. Returns the end of the run if no further restart is made.
    pub(super) fn restart_server(&mut self) -> Option<RunEnd> {
        let live_settings = self.live_settings.as_ref();
        let started = ServerProcess::start(
            &self.deployment,
            &self.options,
            live_settings,
            self.sender.clone(),
        );
        self.child = match started {
            Ok(child) => child,
            Err(failure) => return self.schedule_restart(failure.text()),
        };
        self.is_down = false;
        let pid = self.child.pid();
        let restarts = self.restarts.count_start();
        self.output.event(&events::server_restarted(pid, restarts));
        let policy = self.deployment.policy.clone();
        let subject = subject(&self.deployment.server, pid, policy.clone());
        self.placement = match self.placer.handle.add(subject) {
            Ok(pending) => PlacementState::Requested(pending, policy),
            Err(error) => {
                self.kill_unplaceable(&error);
                PlacementState::Inactive
            }
        };
        None
    }

    /// Receives the placer's reply to a pending request, if it has arrived.
    pub(super) fn poll_placement(&mut self) {
        let PlacementState::Requested(pending, requested) = &self.placement else {
            return;
        };
        let answer = match pending.poll() {
            Err(ControlError::Late) => return,
            answer => answer,
        };
        let is_current = *requested == self.deployment.policy;
        self.placement = PlacementState::Inactive;
        match answer {
            Ok(Ok(subject)) => {
                self.placement = PlacementState::Active(subject);
                if !is_current {
                    let policy = self.deployment.policy.clone();
                    // Fails only if the placer thread has ended, which it reports itself.
                    let set = self.placer.handle.set_policy(subject, policy);
                    self.is_policy_pending = set.is_ok();
                }
            }
            Ok(Err(error)) => self.kill_unplaceable(&error),
            Err(error) => self.kill_unplaceable(&error),
        }
    }

    /// Rows of the current server process; a table may predate the exit of the previous process.
    pub(super) fn rows_of_current_server(&self, mut rows: Vec<SlotRow>) -> Vec<SlotRow> {
        rows.retain(|row| matches!(self.placement, PlacementState::Active(subject) if subject == row.subject));
        rows
    }

    /// Event loops of the current server process.
    pub(super) fn front_of_current_server(&self, states: &[SubjectState]) -> Vec<FrontRow> {
        let mut states = states.iter();
        let current = states.find(|state| matches!(self.placement, PlacementState::Active(subject) if subject == state.subject));
        current.map_or_else(Vec::new, |state| state.front.clone())
    }

    /// Kills a server that cannot be placed, so that it is restarted like one that exited on its
    /// own; usually it already has exited.
    fn kill_unplaceable(&mut self, error: &dyn std::error::Error) {
        self.note(&format!(
            "the restarted server cannot be placed: {}",
            sentence(error)
        ));
        self.child.kill_now();
    }
}
