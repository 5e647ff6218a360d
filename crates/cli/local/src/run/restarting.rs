//! What follows when the server's process ends: what it left behind is ended, then it is started
//! again with the same arguments and addresses, and placed again.

use std::time::Instant;

use albacore_api::Server;
use albacore_command::{Failure, sentence};
use albacore_os::Pid;
use albacore_placer::{ControlError, Pending, PlacerError, Row, SubjectConfig, SubjectId};
use albacore_plan::{Policy, Source};
use serde_json::Value;

use super::{End, Run};
use crate::inbox::Inbox;
use crate::restarts::FAILED_STARTS_MAX;
use crate::server::Child;
use crate::{events, left_behind};

/// What the placer knows of the present life of the server.
pub(super) enum Placed {
    /// It places this subject.
    As(SubjectId),
    /// It was told to, under this policy, and has not answered.
    Asked(Pending<Result<SubjectId, PlacerError>>, Policy),
    /// There is no server.
    Nothing,
}

/// The server's process as what is to be placed.
pub(super) fn subject(server: &Server, root: Pid, policy: Policy) -> SubjectConfig {
    SubjectConfig {
        root,
        cgroup: None,
        source: match server {
            Server::BuiltIn(_) => Source::Named,
            Server::Own(_) => Source::PreFork,
        },
        policy,
    }
}

impl Run {
    /// The server is ready: from its own word, or, if it is the user's, once all of its threads are
    /// there.
    pub(super) fn note_ready(&mut self) {
        if self.ready_since.is_none() {
            self.ready_since = Some(Instant::now());
            self.was_ready = true;
        }
    }

    /// Takes the addresses that the first life was given: the next ones listen on the same.
    pub(super) fn keep_addresses(&mut self, said: &Value) {
        let address = |field: &str| said[field].as_str().and_then(|text| text.parse().ok());
        if let (Some(http), Some(grpc)) = (address("http"), address("grpc")) {
            (self.options.http, self.options.grpc) = (http, grpc);
        }
    }

    /// The server's process ended though nobody asked it to. The end of the run, unless it is to be
    /// started again.
    pub(super) fn server_ended(
        &mut self,
        status: std::io::Result<std::process::ExitStatus>,
    ) -> Option<End> {
        let failure = self.child.ended(&status);
        let how = match &status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        self.child.note_exit(status);
        if !self.was_ready {
            return Some(End::ServerEnded(failure));
        }
        self.start_later(&how)
    }

    /// Starts the server after a pause, or gives up. `how` the last life ended, or why it did not
    /// begin.
    fn start_later(&mut self, how: &str) -> Option<End> {
        let ready_for = self.ready_since.take().map(|since| since.elapsed());
        self.is_down = true;
        self.is_placed_told = false;
        self.is_policy_pending = false;
        self.rows.clear();
        if let Placed::As(subject) = std::mem::replace(&mut self.placed, Placed::Nothing) {
            // The placer has seen the end, too, or does so now; nobody waits for its answer.
            drop(self.placing.handle.remove(subject));
        }
        let Some(pause) = self.restarts.after(ready_for) else {
            return Some(End::ServerEnded(Failure::Failed(format!(
                "the server was started {FAILED_STARTS_MAX} times and ended each time before it was ready, the last \
                 time with {how}: see above what it said itself, if anything; mend that, then start albacore run again"
            ))));
        };
        let ended = events::server_ended(self.child.pid(), how, pause);
        self.output.event(&ended);
        let is_kept = self
            .serving
            .as_ref()
            .map(crate::serving::Serving::recognizer);
        let inbox = self.sender.clone();
        std::thread::spawn(move || {
            // Workers of the former life would compute, and hold memory, beside those of the next.
            left_behind::end(|pid| is_kept.as_ref().is_some_and(|is_kept| is_kept(pid)));
            std::thread::sleep(pause);
            // A run that has ended meanwhile needs no server.
            drop(inbox.send(Inbox::StartDue));
        });
        None
    }

    /// Starts the server again; the end of the run if it has to be given up.
    pub(super) fn start_again(&mut self) -> Option<End> {
        let serving = self.serving.as_ref();
        let started = Child::start(
            &self.deployment,
            &self.options,
            serving,
            self.sender.clone(),
        );
        self.child = match started {
            Ok(child) => child,
            Err(failure) => return self.start_later(failure.text()),
        };
        self.is_down = false;
        let pid = self.child.pid();
        let restarts = self.restarts.begin();
        self.output.event(&events::server_restarted(pid, restarts));
        let policy = self.deployment.policy.clone();
        let subject = subject(&self.deployment.server, pid, policy.clone());
        self.placed = match self.placing.handle.add(subject) {
            Ok(pending) => Placed::Asked(pending, policy),
            Err(error) => {
                self.end_unplaced(&error);
                Placed::Nothing
            }
        };
        None
    }

    /// Looks whether the placer has answered that it places the present life.
    pub(super) fn hear_placed(&mut self) {
        let Placed::Asked(pending, asked) = &self.placed else {
            return;
        };
        let answer = match pending.poll() {
            Err(ControlError::Late) => return,
            answer => answer,
        };
        let is_as_asked = *asked == self.deployment.policy;
        self.placed = Placed::Nothing;
        match answer {
            Ok(Ok(subject)) => {
                self.placed = Placed::As(subject);
                if !is_as_asked {
                    let policy = self.deployment.policy.clone();
                    // It fails only if the placer is gone, whose own word then follows.
                    let set = self.placing.handle.set_policy(subject, policy);
                    self.is_policy_pending = set.is_ok();
                }
            }
            Ok(Err(error)) => self.end_unplaced(&error),
            Err(error) => self.end_unplaced(&error),
        }
    }

    /// A table may have been made before the placer knew that a life had ended.
    pub(super) fn rows_of_this_life(&self, mut rows: Vec<Row>) -> Vec<Row> {
        rows.retain(|row| matches!(self.placed, Placed::As(subject) if subject == row.subject));
        rows
    }

    /// A server that cannot be placed is ended, and started again like one that ended by itself;
    /// most often it has.
    fn end_unplaced(&mut self, error: &dyn std::error::Error) {
        self.note(&format!(
            "the server that was started again cannot be placed: {}",
            sentence(error)
        ));
        self.child.kill_now();
    }
}
