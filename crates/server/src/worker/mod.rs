//! What a worker process runs: T named threads that compute the batches of one ring.
//!
//! The process has nothing else: no runtime, no logger, no listener. It starts by mapping what it
//! inherited and by opening the models, says that it is ready, and sleeps on its doorbell. Its rows
//! and models are mapped read-only. Any panic ends it: the front runs its batch elsewhere.

mod compute;
mod inherited;
mod team;

use std::process::ExitCode;
use std::time::Instant;

use albacore_os::{Wake, set_thread_name};
use albacore_trees::Predictor;

use crate::layout::outputs_of;
use crate::ring::{Call, Ring};
use compute::{Hands, Served};
use inherited::Inherited;
use team::Team;

pub(crate) use inherited::arguments;

/// The subcommand that makes this binary a worker.
pub const SUBCOMMAND: &str = "worker";

/// Runs a worker with the arguments behind [`SUBCOMMAND`].
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
    let mut models = Vec::with_capacity(inherited.models.len());
    for (image, kinds) in &inherited.models {
        let predictor = Predictor::open(image.as_slice()).map_err(|error| error.to_string())?;
        models.push(Served {
            outputs: outputs_of(&predictor, *kinds),
            predictor,
        });
    }
    let ring = &inherited.ring;
    let rows = inherited.rows.as_slice();
    let mut hands = Hands::new(rows, inherited.map_results()?);
    let team = Team::new(inherited.threads);
    std::thread::scope(|scope| {
        for rank in 1..inherited.threads {
            let mut hands = Hands::new(rows, inherited.map_results()?);
            let (team, models) = (&team, models.as_slice());
            let peer = move || team.follow(ring, models, &mut hands);
            let spawned = std::thread::Builder::new()
                .name(name(rank))
                .spawn_scoped(scope, peer);
            if let Err(error) = spawned {
                team.dismiss();
                return Err(format!("thread {} cannot be started: {error}", name(rank)));
            }
        }
        // Whoever looks at the threads of a ready worker finds every name.
        team.assemble();
        lead(ring, &inherited.done, &models, &team, &mut hands);
        team.dismiss();
        Ok(())
    })
}

/// What rank 0 does until it is told to stop.
fn lead(ring: &Ring, done: &Wake, models: &[Served<'_>], team: &Team, hands: &mut Hands<'_>) {
    let mut last = 0;
    ring.set_ready();
    done.wake();
    while let Call::Run(sequence) = ring.next_call(last) {
        last = sequence;
        ring.begin(sequence);
        let start = Instant::now();
        let segments = team.lead(ring, models, hands);
        ring.finish(sequence, segments, start.elapsed());
        done.wake();
    }
}
