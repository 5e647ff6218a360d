//! Main loop of a run.
//!
//! The main thread handles one [`Message`] at a time and never blocks on its sources, so that
//! Ctrl-C always works. Order of the shutdown: the placer restores every mask, the server drains,
//! then the exit code is determined.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use albacore_api::{LocalDeployment, Server, read_for_one_machine};
use albacore_placer::{FrontRow, PlacerCounters, Report, SlotRow, SlotState};
use albacore_plan::{Enforcement, PlacementMethod};
use albacore_settings::Source;

use crate::events::{self, policy_name};
use crate::live_settings::LiveSettings;
use crate::message::{Message, QUEUE_MESSAGES_MAX};
use crate::options::Options;
use crate::output::EventOutput;
use crate::placer_thread::{LocalPlacerThread, PlacerMessage};
use crate::restart_policy::RestartPolicy;
use crate::server::ServerProcess;
use crate::{cpus, file_watch, orphans, server};
use albacore_command::{Failure, sentence};
use restart::PlacementState;

mod edits;
mod restart;
mod trial;

/// How long the server may drain after SIGTERM before it is killed: its own limit plus a margin.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(35);

/// Runs until a signal or an error, such as a server that cannot be started or restarted.
///
/// # Errors
/// The file, the server or the kernel does not permit the run; the failure contains the cause and a
/// remedy.
pub fn run(options: &Options) -> Result<(), Failure> {
    let options = &Options {
        cpus: cpus::restrict(options.cpus.as_ref())?,
        ..options.clone()
    };
    let stamp = file_watch::stamp(&options.file);
    let deployment = read(&options.file)?;
    server::check_front_threads(&options.file, &deployment.server)?;
    server::check_models(&options.file, &deployment.server)?;
    let mut output = EventOutput::new(options.output);
    for notice in &deployment.notices {
        output.event(&events::note(notice));
    }
    let (sender, messages) = sync_channel(QUEUE_MESSAGES_MAX);
    server::forward_signals(sender.clone())?;
    orphans::become_reaper()?;
    let live_settings = match &deployment.server {
        Server::BuiltIn(server) => Some(LiveSettings::start(server, sender.clone())?),
        Server::Own(_) => None,
    };
    let started = start(
        &deployment,
        options,
        live_settings.as_ref(),
        &sender,
        &messages,
    );
    let (child, placer) = match started {
        Ok(started) => started,
        Err(failure) => {
            if let Some(live_settings) = live_settings {
                live_settings.stop();
            }
            orphans::terminate(|_| false);
            return Err(failure);
        }
    };
    file_watch::watch(options.file.clone(), stamp, sender.clone());
    let mut run = LocalRun {
        options: options.clone(),
        sender,
        deployment,
        output,
        child,
        live_settings,
        ready_since: None,
        was_ready: false,
        is_down: false,
        restarts: RestartPolicy::default(),
        placement: PlacementState::Active(placer.subject),
        placer,
        rows: Vec::new(),
        front: Vec::new(),
        figures: Box::default(),
        is_placed_reported: false,
        is_policy_pending: false,
        trial: None,
        restore_error: None,
    };
    let end = run.serve(&messages);
    run.finish(&messages, end)
}

/// Starts the server and the placer.
fn start(
    deployment: &LocalDeployment,
    options: &Options,
    live_settings: Option<&LiveSettings>,
    sender: &SyncSender<Message>,
    messages: &Receiver<Message>,
) -> Result<(ServerProcess, LocalPlacerThread), Failure> {
    let child = ServerProcess::start(deployment, options, live_settings, sender.clone())?;
    let policy = deployment.policy.clone();
    let subject = restart::subject(&deployment.server, child.pid(), policy);
    match LocalPlacerThread::start(subject, options.cpus.clone(), sender.clone()) {
        Ok(placer) => Ok((child, placer)),
        Err(error) => Err(child.stop_unplaceable(messages, &sentence(&error))),
    }
}

/// Reads the deployment; relative paths are resolved against the directory of the file.
fn read(file: &Path) -> Result<LocalDeployment, Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|e| {
        Failure::Failed(format!(
            "{name} cannot be read: {e}; give -f the path of an InferenceDeployment"
        ))
    })?;
    let folder = std::path::absolute(file)
        .map_err(|e| Failure::file(file, &e))?
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf);
    read_for_one_machine(&text, &name, &folder).map_err(|e| Failure::Usage(sentence(&e)))
}

/// Why the main loop ended.
enum RunEnd {
    /// Requested by a signal.
    Requested,
    /// The server exited and is not restarted.
    ServerExited(Failure),
    PlacerFailed(Failure),
}

struct LocalRun {
    /// Options in which the ports chosen by the kernel are filled in; the CPUs are the limit of
    /// placement.
    options: Options,
    sender: SyncSender<Message>,
    deployment: LocalDeployment,
    output: EventOutput,
    child: ServerProcess,
    /// Applies edits to the built-in server; `None` for the user's own server.
    live_settings: Option<LiveSettings>,
    /// Time at which the current server process became ready.
    ready_since: Option<Instant>,
    /// Whether any server process was ever ready: later ones are restarted when they exit.
    was_ready: bool,
    /// Whether no server process is running, between the exit of one and the start of the next.
    is_down: bool,
    restarts: RestartPolicy,
    placement: PlacementState,
    placer: LocalPlacerThread,
    rows: Vec<SlotRow>,
    front: Vec<FrontRow>,
    figures: Box<PlacerCounters>,
    /// Whether the current state was reported as `placed`.
    is_placed_reported: bool,
    /// Whether a changed policy has not been applied by the placer yet; until then its tables
    /// describe the previous policy.
    is_policy_pending: bool,
    trial: Option<trial::ServerTrial>,
    /// Why masks could not be restored on exit.
    restore_error: Option<String>,
}

impl LocalRun {
    fn serve(&mut self, messages: &Receiver<Message>) -> RunEnd {
        while let Ok(message) = messages.recv() {
            self.poll_placement();
            match message {
                Message::Placer(PlacerMessage::Ended(Err(error))) => {
                    let text = sentence(&error);
                    return RunEnd::PlacerFailed(match error.category() {
                        "invariant" => Failure::Broken(text),
                        _ => Failure::Failed(text),
                    });
                }
                Message::Placer(PlacerMessage::Ended(Ok(()))) => {
                    return RunEnd::PlacerFailed(Failure::Failed("the placer ended".into()));
                }
                Message::Placer(message) => self.handle_placer_message(message),
                Message::ServerLine(line) => {
                    if let Some(failure) = self.handle_server_line(&line) {
                        return RunEnd::ServerExited(failure);
                    }
                }
                Message::Note(text) => self.note(&text),
                Message::ServerExited(status) => {
                    if let Some(end) = self.handle_server_exit(status) {
                        return end;
                    }
                }
                Message::StartDue => {
                    if let Some(end) = self.restart_server() {
                        return end;
                    }
                }
                Message::FileChanged => self.reload_file(),
                Message::Signal(_) => return RunEnd::Requested,
            }
        }
        RunEnd::PlacerFailed(Failure::Failed("every source of messages has ended".into()))
    }

    /// Reports an output line of the server. Returns a failure if a local model file cannot be
    /// loaded at startup, because waiting for it is pointless. Later failures are only reported,
    /// because the models loaded before are still served.
    fn handle_server_line(&mut self, line: &str) -> Option<Failure> {
        let event_of_line = server::line_event(&self.deployment.server, line);
        self.output.event(&event_of_line);
        let Server::BuiltIn(server) = &self.deployment.server else {
            return None;
        };
        match event_of_line["event"].as_str() {
            Some("listening") => {
                self.keep_addresses(&event_of_line);
                return None;
            }
            Some("ready") => {
                self.mark_ready();
                return None;
            }
            Some("model_failed") if !self.was_ready => {}
            _ => return None,
        }
        let (name, error) = (
            event_of_line["model"].as_str()?,
            event_of_line["error"].as_str()?,
        );
        let mut models = server.settings.models.iter();
        let model = models.find(|model| model.name == name)?;
        let is_here = matches!(model.source, Source::Path(_));
        let file = self.options.file.display();
        is_here.then(|| Failure::Failed(format!("{file}: model {name:?}: {error}")))
    }

    fn note(&mut self, text: &str) {
        self.output.event(&events::note(text));
    }

    fn handle_placer_message(&mut self, message: PlacerMessage) {
        match message {
            PlacerMessage::Report(report) => {
                let is_change = !matches!(report, Report::Warning { .. });
                self.is_placed_reported &= !is_change;
                self.is_policy_pending &= !matches!(report, Report::PolicySet { .. });
                if let Report::Restored(restored) = &report {
                    self.restore_error = restored.errors.first().cloned();
                }
                self.output.event(&events::of_report(&report));
            }
            PlacerMessage::Table(rows, states, figures) => {
                self.rows = self.rows_of_current_server(rows);
                self.front = self.front_of_current_server(&states);
                self.figures = figures;
                self.advance_trial(&states);
                orphans::reap(self.child.pid());
                let head = self.head();
                self.output
                    .rows(&head, &self.rows, &self.front, &self.figures);
                if matches!(self.deployment.server, Server::Own(_)) && self.has_all_threads() {
                    self.mark_ready();
                }
                if !self.is_placed_reported && self.is_placed() {
                    self.is_placed_reported = true;
                    let policy = self.policy_in_force();
                    let placed = events::placed(&policy, &self.rows, &self.front);
                    self.output.event(&placed);
                }
            }
            PlacerMessage::Ended(_) => {}
        }
    }

    /// Whether every slot is filled by a live thread whose mask was read back as planned, and the
    /// masks of event loops were as well.
    fn is_placed(&self) -> bool {
        let policy = self.policy_in_force();
        let expected = match policy.placement {
            PlacementMethod::None => SlotState::Unplaced,
            PlacementMethod::Tuna | PlacementMethod::RoundRobin => SlotState::Verified,
        };
        !self.is_policy_pending
            && self.has_all_threads()
            && self.rows.iter().all(|row| row.state == expected)
            && self.front.iter().all(FrontRow::is_verified)
    }

    /// Whether every slot is filled by a live thread.
    fn has_all_threads(&self) -> bool {
        let policy = &self.deployment.policy;
        let slots = usize::from(policy.workers) * usize::from(policy.threads);
        self.rows.len() == slots && self.rows.iter().all(|row| row.tid.is_some())
    }

    fn head(&self) -> String {
        let policy = self.policy_in_force();
        let verified = self
            .rows
            .iter()
            .filter(|row| row.state == SlotState::Verified)
            .count();
        format!(
            "{}: {} workers x {} threads, policy {}{}; {verified} of {} threads verified",
            self.deployment.name,
            policy.workers,
            policy.threads,
            policy_name(&policy),
            match policy.enforcement {
                Enforcement::Enforce => "",
                Enforcement::Observe => " (observed only)",
            },
            usize::from(policy.workers) * usize::from(policy.threads),
        )
    }

    /// Restores masks, drains the server, and returns the result of the run.
    fn finish(mut self, messages: &Receiver<Message>, end: RunEnd) -> Result<(), Failure> {
        let is_over = matches!(end, RunEnd::PlacerFailed(_)) || self.placer.handle.stop().is_err();
        if !is_over {
            self.handle_messages_until(messages, DRAIN_TIME_MAX, |message| {
                matches!(message, Message::Placer(PlacerMessage::Ended(_)))
            });
        }
        let Self {
            placer,
            child,
            mut output,
            figures,
            deployment,
            restore_error,
            live_settings,
            is_down,
            restarts,
            ..
        } = self;
        placer.join();
        let mut record_line =
            |line: &str| output.event(&server::line_event(&deployment.server, line));
        let drained = match (&end, is_down) {
            // The run ends while no server is running: nothing is left to drain.
            (RunEnd::Requested, true) => Ok(()),
            _ => child.drain(messages, DRAIN_TIME_MAX, &mut record_line),
        };
        if let Some(live_settings) = live_settings {
            live_settings.stop();
        }
        let killed = orphans::terminate(|_| false);
        if killed > 0 {
            let text = format!("the server left {killed} processes behind, which were killed");
            output.event(&events::note(&text));
        }
        output.event(&events::summary(&figures, restarts.total()));
        match (end, drained, restore_error) {
            (RunEnd::ServerExited(failure), ..) => Err(failure),
            (RunEnd::PlacerFailed(Failure::Failed(text)), Err(Failure::Failed(also)), _) => {
                Err(Failure::Failed(format!("{text}; {also}")))
            }
            (RunEnd::PlacerFailed(failure), ..) => Err(failure),
            (RunEnd::Requested, Err(failure), _) => Err(failure),
            (RunEnd::Requested, Ok(()), Some(reason)) => Err(Failure::Failed(format!(
                "not every mask could be restored: {reason}"
            ))),
            (RunEnd::Requested, Ok(()), None) => Ok(()),
        }
    }

    /// Handles messages until `is_last` accepts one, for at most `patience`.
    fn handle_messages_until(
        &mut self,
        messages: &Receiver<Message>,
        patience: Duration,
        is_last: impl Fn(&Message) -> bool,
    ) {
        let deadline = Instant::now() + patience;
        while let Ok(message) =
            messages.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            let last = is_last(&message);
            match message {
                Message::Placer(message) => self.handle_placer_message(message),
                // The server is being stopped, so a failure reported now is irrelevant.
                Message::ServerLine(line) => drop(self.handle_server_line(&line)),
                Message::Note(text) => self.note(&text),
                Message::ServerExited(status) => self.child.record_exit(status),
                Message::Signal(count) => self.child.record_signal(count),
                Message::FileChanged | Message::StartDue => {}
            }
            if last {
                return;
            }
        }
    }
}
