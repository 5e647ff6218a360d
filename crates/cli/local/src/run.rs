//! The run: serves what the file describes on this machine, places every thread and keeps it
//! placed.
//!
//! The main thread takes one message at a time from the inbox: the placer's news, the server's
//! lines, signals, edits of the file. It never blocks on any of them, so that Ctrl-C always works.
//! Order at the end: the placer gives every mask back, the server drains, then the exit code is
//! known.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use albacore_api::{ModelSource, OneMachine, Server, read_for_one_machine};
use albacore_placer::{Figures, Report, Row, RowState};
use albacore_plan::{Enforcement, Placement, Policy};
use serde_json::json;

use crate::events::{self, event, policy_name};
use crate::inbox::{INBOX_MESSAGES_MAX, Inbox};
use crate::output::Output;
use crate::placing::{News, Placing};
use crate::restarts::Restarts;
use crate::server::Child;
use crate::serving::Serving;
use crate::{file_watch, left_behind, server, table};
use albacore_command::{Failure, sentence};
use restarting::Placed;

mod restarting;

/// How long the server may drain after SIGTERM before it is killed: the server's own limit and some
/// more.
const DRAIN: Duration = Duration::from_secs(35);

/// What is run, and how it is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// The InferenceDeployment; what can change while it runs is taken from it live.
    pub file: PathBuf,
    /// Where the built-in server listens for HTTP.
    pub http: SocketAddr,
    /// Where the built-in server listens for gRPC.
    pub grpc: SocketAddr,
    /// The form of what is printed.
    pub shape: Shape,
}

/// The form of what is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A table on a terminal, JSON lines otherwise.
    Auto,
    Table,
    /// One JSON object an event, one event a line.
    Json,
}

/// Runs until a signal or an error, a server that cannot be started (again) among them.
///
/// # Errors
/// The file, the server or the kernel does not allow it; the failure says which and what to do.
pub fn run(options: &Options) -> Result<(), Failure> {
    let stamp = file_watch::stamp(&options.file);
    let deployment = read(&options.file)?;
    server::check_models(&options.file, &deployment.server)?;
    let mut output = match options.shape {
        Shape::Table => Output::Terminal(table::Table::default()),
        Shape::Auto if std::io::stdout().is_terminal() => Output::Terminal(table::Table::default()),
        Shape::Auto | Shape::Json => Output::Json,
    };
    for notice in &deployment.notices {
        output.event(&event("note", json!({"text": notice})));
    }
    let (sender, inbox) = sync_channel(INBOX_MESSAGES_MAX);
    server::forward_signals(sender.clone())?;
    left_behind::adopt()?;
    let serving = match &deployment.server {
        Server::BuiltIn(settings) => Some(Serving::start(settings, &options.file, sender.clone())?),
        Server::Own(_) => None,
    };
    let child = match Child::start(&deployment, options, serving.as_ref(), sender.clone()) {
        Ok(child) => child,
        Err(failure) => {
            if let Some(serving) = serving {
                serving.stop();
            }
            return Err(failure);
        }
    };
    let policy = deployment.policy.clone();
    let subject = restarting::subject(&deployment.server, child.pid(), policy);
    let placing = match Placing::start(subject, sender.clone()) {
        Ok(placing) => placing,
        Err(error) => {
            let failure = child.end_for(&inbox, &sentence(&error));
            if let Some(serving) = serving {
                serving.stop();
            }
            left_behind::end(|_| false);
            return Err(failure);
        }
    };
    file_watch::watch(options.file.clone(), stamp, sender.clone());
    let mut run = Run {
        options: options.clone(),
        sender,
        deployment,
        output,
        child,
        serving,
        ready_since: None,
        was_ready: false,
        is_down: false,
        restarts: Restarts::default(),
        placed: Placed::As(placing.subject),
        placing,
        rows: Vec::new(),
        figures: Box::default(),
        is_placed_told: false,
        is_policy_pending: false,
        not_restored: None,
    };
    let end = run.serve(&inbox);
    run.finish(&inbox, end)
}

/// Reads the deployment; its relative paths are below its own folder.
fn read(file: &Path) -> Result<OneMachine, Failure> {
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
    read_for_one_machine(&text, &name, &folder).map_err(|e| Failure::Failed(sentence(&e)))
}

/// Why the serving ended.
enum End {
    /// A signal asked for it.
    Asked,
    /// The server ended by itself, and is not started again.
    ServerEnded(Failure),
    /// The placer could not go on.
    PlacerFailed(Failure),
}

struct Run {
    /// Ports that were chosen by the kernel are named here once they are known.
    options: Options,
    sender: SyncSender<Inbox>,
    deployment: OneMachine,
    output: Output,
    child: Child,
    /// How the built-in server hears of edits.
    serving: Option<Serving>,
    /// Since when the present life of the server is ready.
    ready_since: Option<Instant>,
    /// Whether any life of the server was ready: those after it are started again when they end.
    was_ready: bool,
    /// Whether the last life of the server has ended, and the next one not begun.
    is_down: bool,
    restarts: Restarts,
    placed: Placed,
    placing: Placing,
    rows: Vec<Row>,
    figures: Box<Figures>,
    /// Whether the present state was told as `placed`.
    is_placed_told: bool,
    /// Whether the placer has yet to act on a changed policy: what it tells until then is about the
    /// one before.
    is_policy_pending: bool,
    /// Why masks could not be given back at the end.
    not_restored: Option<String>,
}

impl Run {
    fn serve(&mut self, inbox: &Receiver<Inbox>) -> End {
        while let Ok(message) = inbox.recv() {
            self.hear_placed();
            match message {
                Inbox::Placer(News::Ended(Err(error))) => {
                    let text = sentence(&error);
                    return End::PlacerFailed(match error.category() {
                        "invariant" => Failure::Broken(text),
                        _ => Failure::Failed(text),
                    });
                }
                Inbox::Placer(News::Ended(Ok(()))) => {
                    return End::PlacerFailed(Failure::Failed("the placer ended".into()));
                }
                Inbox::Placer(news) => self.hear(news),
                Inbox::ServerLine(line) => {
                    if let Some(failure) = self.server_said(&line) {
                        return End::ServerEnded(failure);
                    }
                }
                Inbox::Note(text) => self.note(&text),
                Inbox::ServerExited(status) => {
                    if let Some(end) = self.server_ended(status) {
                        return end;
                    }
                }
                Inbox::StartDue => {
                    if let Some(end) = self.start_again() {
                        return end;
                    }
                }
                Inbox::FileChanged => self.reread(),
                Inbox::Signal(_) => return End::Asked,
            }
        }
        End::PlacerFailed(Failure::Failed("nothing is left to wait for".into()))
    }

    /// Tells what the server said. A failure if there is no reason to wait for it any longer: a
    /// model of this machine that cannot be loaded at the start; later ones are told, and what was
    /// served still is.
    fn server_said(&mut self, line: &str) -> Option<Failure> {
        let said = server::line(&self.deployment.server, line);
        self.output.event(&said);
        let Server::BuiltIn(settings) = &self.deployment.server else {
            return None;
        };
        match said["event"].as_str() {
            Some("listening") => {
                self.keep_addresses(&said);
                return None;
            }
            Some("ready") => {
                self.note_ready();
                return None;
            }
            Some("model_failed") if !self.was_ready => {}
            _ => return None,
        }
        let (name, error) = (said["model"].as_str()?, said["error"].as_str()?);
        let model = settings.models.iter().find(|model| model.name == name)?;
        let is_here = matches!(model.source, ModelSource::File(_));
        let file = self.options.file.display();
        is_here.then(|| Failure::Failed(format!("{file}: model {name:?}: {error}")))
    }

    fn note(&mut self, text: &str) {
        self.output.event(&event("note", json!({"text": text})));
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Report(report) => {
                let is_change = !matches!(report, Report::Note { .. });
                self.is_placed_told &= !is_change;
                self.is_policy_pending &= !matches!(report, Report::PolicySet { .. });
                if let Report::Restored(restored) = &report {
                    self.not_restored = restored.errors.first().cloned();
                }
                self.output.event(&events::of_report(&report));
            }
            News::Table(rows, figures) => {
                self.rows = self.rows_of_this_life(rows);
                self.figures = figures;
                left_behind::reap(self.child.pid());
                let head = self.head();
                self.output.rows(&head, &self.rows, &self.figures);
                if matches!(self.deployment.server, Server::Own(_)) && self.has_all_threads() {
                    self.note_ready();
                }
                if !self.is_placed_told && self.is_placed() {
                    self.is_placed_told = true;
                    let policy = policy_name(&self.deployment.policy);
                    self.output.event(&events::placed(policy, &self.rows));
                }
            }
            News::Ended(_) => {}
        }
    }

    /// True if every slot is filled by a live thread whose mask was read back as it should be.
    fn is_placed(&self) -> bool {
        let policy = &self.deployment.policy;
        let expected = match policy.placement {
            Placement::None => RowState::Unplaced,
            Placement::Tuna | Placement::RoundRobin => RowState::Verified,
        };
        !self.is_policy_pending
            && self.has_all_threads()
            && self.rows.iter().all(|row| row.state == expected)
    }

    /// True if every slot is filled by a live thread.
    fn has_all_threads(&self) -> bool {
        let policy = &self.deployment.policy;
        let slots = usize::from(policy.workers) * usize::from(policy.threads);
        self.rows.len() == slots && self.rows.iter().all(|row| row.tid.is_some())
    }

    fn head(&self) -> String {
        let policy = &self.deployment.policy;
        let verified = self
            .rows
            .iter()
            .filter(|row| row.state == RowState::Verified)
            .count();
        format!(
            "{}: {} workers x {} threads, policy {}{}; {verified} of {} threads verified",
            self.deployment.name,
            policy.workers,
            policy.threads,
            policy_name(policy),
            match policy.enforcement {
                Enforcement::Enforce => "",
                Enforcement::Observe => " (observed only)",
            },
            usize::from(policy.workers) * usize::from(policy.threads),
        )
    }

    /// Takes over what can change while serving; the rest is named, not ignored.
    fn reread(&mut self) {
        let now = match read(&self.options.file) {
            Ok(now) => now,
            Err(failure) => {
                let text = format!("the file was not taken over: {}", failure.text());
                return self.note(&text);
            }
        };
        self.take_server(now.server);
        for notice in &now.notices {
            if !self.deployment.notices.contains(notice) {
                self.output.event(&event("note", json!({"text": notice})));
            }
        }
        self.deployment.notices.clone_from(&now.notices);
        // An edit starts over where masks are left as somebody else made them.
        if let Err(error) = self.placing.handle.retry_now(self.placing.subject) {
            let text = format!("masks that are left as they are were not tried again: {error}");
            self.output.event(&event("note", json!({"text": text})));
        }
        let before = &self.deployment.policy;
        let policy = Policy {
            workers: before.workers,
            threads: before.threads,
            ..now.policy
        };
        if policy == *before {
            return;
        }
        let set = match &self.placed {
            Placed::As(subject) => {
                let set = self.placing.handle.set_policy(*subject, policy.clone());
                set.map(|()| true)
            }
            // The next life is placed by it.
            Placed::Asked(..) | Placed::Nothing => Ok(false),
        };
        match set {
            Ok(is_pending) => {
                self.deployment.policy = policy;
                self.is_placed_told = false;
                self.is_policy_pending = is_pending;
                self.output
                    .event(&events::policy_changed(&self.deployment.policy));
            }
            Err(error) => {
                let text = format!("the policy was not changed: {error}");
                self.output.event(&event("note", json!({"text": text})));
            }
        }
    }

    /// Takes over what of the server can change while it runs: models, objectives, batching and
    /// queue of the built-in one.
    fn take_server(&mut self, now: Server) {
        if now == self.deployment.server {
            return;
        }
        let changed = match (now, &mut self.deployment.server, &mut self.serving) {
            (Server::BuiltIn(now), Server::BuiltIn(before), Some(serving))
                if (now.workers, now.threads, &now.environment)
                    == (before.workers, before.threads, &before.environment) =>
            {
                serving.change(&now).map(|()| *before = now)
            }
            _ => Err(
                "it changes workers, threads, environment or command: that takes effect when \
                 albacore run is started again"
                    .to_owned(),
            ),
        };
        if let Err(problem) = changed {
            self.note(&format!(
                "the server was not changed by the file: {problem}"
            ));
        }
    }

    /// Gives masks back, drains the server, and says how it all ended.
    fn finish(mut self, inbox: &Receiver<Inbox>, end: End) -> Result<(), Failure> {
        let is_over = matches!(end, End::PlacerFailed(_)) || self.placing.handle.stop().is_err();
        if !is_over {
            self.hear_until(inbox, DRAIN, |message| {
                matches!(message, Inbox::Placer(News::Ended(_)))
            });
        }
        let Self {
            placing,
            child,
            mut output,
            figures,
            deployment,
            not_restored,
            serving,
            is_down,
            restarts,
            ..
        } = self;
        placing.join();
        let mut hear = |line: &str| output.event(&server::line(&deployment.server, line));
        let drained = match (&end, is_down) {
            // It ends while there is no server: nothing is left to drain.
            (End::Asked, true) => Ok(()),
            _ => child.drain(inbox, DRAIN, &mut hear),
        };
        if let Some(serving) = serving {
            serving.stop();
        }
        let killed = left_behind::end(|_| false);
        if killed > 0 {
            let text = format!("the server left {killed} processes behind, which were killed");
            output.event(&event("note", json!({"text": text})));
        }
        output.event(&events::summary(&figures, restarts.total()));
        match (end, drained, not_restored) {
            (End::ServerEnded(failure), ..) => Err(failure),
            (End::PlacerFailed(Failure::Failed(text)), Err(Failure::Failed(also)), _) => {
                Err(Failure::Failed(format!("{text}; {also}")))
            }
            (End::PlacerFailed(failure), ..) => Err(failure),
            (End::Asked, Err(failure), _) => Err(failure),
            (End::Asked, Ok(()), Some(reason)) => Err(Failure::Failed(format!(
                "not every mask could be given back: {reason}"
            ))),
            (End::Asked, Ok(()), None) => Ok(()),
        }
    }

    /// Goes on hearing until `is_last` or for `patience`.
    fn hear_until(
        &mut self,
        inbox: &Receiver<Inbox>,
        patience: Duration,
        is_last: impl Fn(&Inbox) -> bool,
    ) {
        let deadline = Instant::now() + patience;
        while let Ok(message) =
            inbox.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            let last = is_last(&message);
            match message {
                Inbox::Placer(news) => self.hear(news),
                // Whatever it says now, it is told to end.
                Inbox::ServerLine(line) => drop(self.server_said(&line)),
                Inbox::Note(text) => self.note(&text),
                Inbox::ServerExited(status) => self.child.note_exit(status),
                Inbox::Signal(count) => self.child.note_signal(count),
                Inbox::FileChanged | Inbox::StartDue => {}
            }
            if last {
                return;
            }
        }
    }
}
