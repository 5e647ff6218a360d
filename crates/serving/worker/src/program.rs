//! The program of a worker process: T named threads that compute the batches of one ring.
//!
//! The process has no runtime, no logger and no listener. It maps the memory of the front, reports
//! that it is ready, and sleeps on its doorbell. Between two batches it receives commands of the
//! front: about models, or to attach the memory of another front that takes the worker over. Rows
//! and models are mapped read-only. Any panic aborts the process: the front replays its batch on
//! another worker.

use std::process::ExitCode;
use std::time::Instant;

use albacore_os::set_thread_name;

use crate::command::WorkerCommand;
use crate::front_memory::{self, LoopWakers, MemoryChanges};
use crate::inherited::Inherited;
use crate::models::Models;
use crate::ring::{Ring, Signal};
use crate::team::Team;
use crate::thread_context::ThreadContext;

/// The subcommand that starts this binary as a worker.
pub const SUBCOMMAND: &str = "worker";

/// Runs a worker with the arguments after [`SUBCOMMAND`].
#[must_use]
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
    // Buffers of a thread are kept until it moves to another NUMA node.
    albacore_os::map_large_allocations();
    match Inherited::from_arguments(arguments).and_then(|inherited| run(&inherited)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("albacore-server: a worker could not start: {error}");
            ExitCode::from(70)
        }
    }
}

fn run(inherited: &Inherited) -> Result<(), String> {
    let name = |rank: usize| format!("albw{}.{rank}", inherited.worker);
    set_thread_name(&name(0)).map_err(|error| error.to_string())?;
    let first = inherited.commands.receive();
    let first = first.map_err(|error| error.to_string())?;
    let first = first.ok_or("the memory of the front was not received")?;
    let (views, event_loops) = front_memory::map(first.fds, inherited.threads)?;
    let models = Models::default();
    let ring = &inherited.ring;
    let changes = MemoryChanges::new(inherited.threads);
    let team = Team::new(inherited.threads);
    std::thread::scope(|scope| {
        let mut views = views.into_iter().enumerate();
        let (_, own) = views.next().ok_or("the worker has no thread")?;
        for (rank, view) in views {
            let mut context = ThreadContext::new(view);
            let (team, models, changes) = (&team, &models, &changes);
            let peer = move || {
                team.follow(ring, models, &mut context, || changes.take(rank));
            };
            let spawned = std::thread::Builder::new()
                .name(name(rank))
                .spawn_scoped(scope, peer);
            if let Err(error) = spawned {
                team.shut_down();
                return Err(format!("thread {} cannot be started: {error}", name(rank)));
            }
        }
        // A worker reports ready only after all of its threads have set their names.
        team.wait_for_peers();
        team.measure_wake_latency();
        let mut leader = Leader {
            inherited,
            models: &models,
            team: &team,
            changes: &changes,
            event_loops,
            context: ThreadContext::new(own),
        };
        leader.run();
        team.shut_down();
        Ok(())
    })
}

/// Rank 0, which reads the ring.
struct Leader<'a> {
    inherited: &'a Inherited,
    models: &'a Models,
    team: &'a Team,
    changes: &'a MemoryChanges,
    /// Event loops of the current front.
    event_loops: LoopWakers,
    context: ThreadContext,
}

impl Leader<'_> {
    /// Runs until the stop signal.
    fn run(&mut self) {
        let ring = &self.inherited.ring;
        let mut last = 0;
        ring.set_ready();
        self.event_loops.notify(ring);
        while let Signal::Run(sequence) = ring.wait_for_signal(last) {
            last = sequence;
            ring.begin(sequence);
            let start = Instant::now();
            let segments = if ring.is_command() {
                // A command is reported like a batch of one segment.
                if let Err(reason) = self.execute_command(ring) {
                    ring.fail(0, &reason);
                }
                1
            } else {
                let models = self.models.table();
                self.team.lead(ring, &models, &mut self.context)
            };
            ring.finish(sequence, segments, start.elapsed());
            self.event_loops.notify(ring);
        }
    }

    /// Executes the last command in the channel: earlier ones are from a front that died before it
    /// rang the doorbell.
    fn execute_command(&mut self, ring: &Ring) -> Result<(), String> {
        let mut last = None;
        // bound: the capacity of the channel
        while let Some(message) = self
            .inherited
            .commands
            .receive()
            .map_err(|error| error.to_string())?
        {
            last = Some(message);
        }
        let message = last.ok_or("no command was received")?;
        let command =
            WorkerCommand::decode(&message.bytes).ok_or("the command cannot be decoded")?;
        if command.is_attach {
            return self.attach(message.fds);
        }
        let executed = self
            .models
            .execute(&command, message.fds.into_iter().next());
        ring.set_open_revisions(self.models.table().revisions());
        if command.moves_scratch {
            self.changes.move_scratch();
            self.team.drop_partial_results();
            self.change_memory();
        }
        executed
    }

    /// Switches to the memory of another front.
    fn attach(&mut self, fds: Vec<std::os::fd::OwnedFd>) -> Result<(), String> {
        let (views, event_loops) = front_memory::map(fds, self.inherited.threads)?;
        self.event_loops = event_loops;
        self.changes.put_views(views);
        self.change_memory();
        Ok(())
    }

    /// Makes every thread change its memory, including peers without work: the memory of the
    /// previous front is freed only when no thread maps it.
    fn change_memory(&mut self) {
        self.context.change(self.changes.take(0));
        self.team.wake_peers();
    }
}
