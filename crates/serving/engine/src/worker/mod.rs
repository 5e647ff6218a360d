//! The program of a worker process: T named threads that compute the batches of one ring.
//!
//! The process has no runtime, no logger and no listener. It maps what it inherited, reports that
//! it is ready, and sleeps on its doorbell. Commands of the front about models arrive between two
//! batches. Its rows and models are mapped read-only. Any panic aborts it: the front runs its batch
//! elsewhere.

mod batch_split;
mod gathered;
mod inherited;
mod models;
mod partial_results;
mod team;
mod thread_context;

use std::process::ExitCode;
use std::time::Instant;

use albacore_os::set_thread_name;

use crate::ring::{Ring, Signal};
use inherited::Inherited;
use models::Models;
use team::Team;
use thread_context::ThreadContext;

pub(crate) use inherited::arguments;

/// The subcommand that makes this binary a worker.
pub const SUBCOMMAND: &str = "worker";

/// Runs a worker with the arguments after [`SUBCOMMAND`].
#[must_use]
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
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
    let models = Models::default();
    let ring = &inherited.ring;
    let rows = inherited.rows.as_slice();
    let mut context = ThreadContext::new(rows, inherited.map_results()?);
    let team = Team::new(inherited.threads);
    std::thread::scope(|scope| {
        for rank in 1..inherited.threads {
            let mut context = ThreadContext::new(rows, inherited.map_results()?);
            let (team, models) = (&team, &models);
            let peer = move || team.follow(ring, models, &mut context);
            let spawned = std::thread::Builder::new()
                .name(name(rank))
                .spawn_scoped(scope, peer);
            if let Err(error) = spawned {
                team.shut_down();
                return Err(format!("thread {} cannot be started: {error}", name(rank)));
            }
        }
        // A ready worker has named all of its threads.
        team.wait_for_peers();
        team.measure_wake_latency();
        lead(inherited, &models, &team, &mut context);
        team.shut_down();
        Ok(())
    })
}

/// The loop of rank 0, until the stop signal.
fn lead(inherited: &Inherited, models: &Models, team: &Team, context: &mut ThreadContext<'_>) {
    let ring = &inherited.ring;
    let mut last = 0;
    ring.set_ready();
    inherited.notify();
    while let Signal::Run(sequence) = ring.wait_for_signal(last) {
        last = sequence;
        ring.begin(sequence);
        let start = Instant::now();
        let segments = if ring.is_command() {
            execute_command(ring, models, inherited)
        } else {
            team.lead(ring, &models.table(), context)
        };
        ring.finish(sequence, segments, start.elapsed());
        inherited.notify();
    }
}

/// Executes a command, which takes the place of a batch of one segment.
fn execute_command(ring: &Ring, models: &Models, inherited: &Inherited) -> usize {
    if let Err(reason) = models.execute(&inherited.command) {
        ring.fail(0, &reason);
    }
    1
}
