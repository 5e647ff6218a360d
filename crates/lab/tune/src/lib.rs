//! `albacore tune`: chooses workers, threads, placement and batching of a deployment for a latency
//! objective, and explains the choice.
//!
//! The costs of requests and batches are measured on a few configurations; the solver and the
//! simulator rank all others with these costs; the best ones are measured in alternation until one
//! is significantly ahead of the others. User files are changed only by `apply`.
#![forbid(unsafe_code)]

mod apply;
mod calibration;
mod check;
mod configuration;
mod context;
mod correction;
mod cpus;
mod deployment;
mod error;
mod exhaustive;
mod job;
mod limiting;
mod outcome;
mod placement;
mod pod_files;
mod pods;
mod prediction;
mod race;
mod ranking;
mod recipe;
mod report;
mod request;
mod server;
mod yaml_patch;

pub use apply::{ApplyRequest, Watching, apply};
pub use check::Sustained;
pub use configuration::Configuration;
pub use error::TuneError;
pub use exhaustive::{Measurement, measure};
pub use job::{TUNE_JOURNAL, describe_job, has_tune_input, line_text, run_job, write_fetched};
pub use outcome::{Measured, Outcome};
pub use report::write_results;
pub use request::{Place, TuneOptions, TuneRequest};

use crate::calibration::Costs;
pub(crate) use crate::context::Context;
use crate::server::Servers;

/// Finds a configuration; `on_progress` is called with a line per step. If a signal or an error
/// ends the run early, the outcome contains the measurements so far.
///
/// # Errors
/// A file or option is invalid, no configuration meets the objective, a server does not start, or a
/// signal was received before a candidate was measured.
pub fn tune(
    request: &TuneRequest,
    on_progress: &mut dyn FnMut(&str),
) -> Result<Outcome, TuneError> {
    let mut context = Context::new(request, on_progress)?;
    let mut servers = Servers::new();
    let costs = Costs::measure(&mut context, &mut servers)?;
    let ranking = ranking::rank(&mut context, &costs);
    let mut race = race::run(&mut context, &mut servers, &ranking)?;
    let mut checked = Vec::new();
    if race.ended_early.is_none() {
        match check::run(&mut context, &mut servers, &race) {
            Ok(sustained) => checked = sustained,
            Err(error) => race.ended_early = Some(error.reason()),
        }
    }
    if request.options.rate.is_none() && check::is_own_kept(&checked, &race) {
        checked.reverse();
        race.keep(&context.deployment.current);
    }
    if race.ended_early.is_none() {
        servers.stop_except(&[])?;
    }
    let recipe = recipe::finish(&context, &costs, &ranking, &race);
    Ok(outcome::of(
        &context, &costs, &ranking, race, checked, recipe,
    ))
}
