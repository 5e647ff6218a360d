//! `albacore tune`: chooses workers, threads, placement and batching of a deployment for a latency
//! objective, and shows why.
//!
//! A few configurations are measured for what requests and batches cost; the solver and the
//! simulator rank all others from that; the best are measured side by side until one is ahead of
//! the others by more than the noise. Nothing of the user's is changed but what `apply` writes.
#![forbid(unsafe_code)]

mod calibration;
mod check;
mod configuration;
mod cpus;
mod deployment;
mod error;
mod job;
mod limiting;
mod outcome;
mod placement;
mod pod_files;
mod prediction;
mod race;
mod ranking;
mod recipe;
mod report;
mod request;
mod server;
mod yaml_patch;

use std::time::Instant;

pub use configuration::Configuration;
pub use error::TuneError;
pub use job::{JobOptions, TUNE_JOURNAL, describe_job, is_sent, line_text, run_job, write_fetched};
pub use outcome::{Measured, Outcome};
pub use report::write_results;
pub use request::{Place, TuneRequest};

use albacore_os::Signals;

use crate::calibration::Costs;
use crate::cpus::Cpus;
use crate::deployment::Deployment;
use crate::ranking::Ranking;
use crate::server::Servers;

/// What a tuning run works with.
pub(crate) struct Context<'a> {
    pub(crate) request: &'a TuneRequest,
    pub(crate) deployment: Deployment,
    pub(crate) cpus: Cpus,
    begin: Instant,
    signals: Signals,
    tell: &'a mut dyn FnMut(&str),
}

impl Context<'_> {
    pub(crate) fn tell(&mut self, line: &str) {
        (self.tell)(line);
    }

    /// The part of the time limit that is gone, in seconds.
    pub(crate) fn elapsed(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// The rate that each pod gets of the one that was asked for, by the best prediction.
    pub(crate) fn rate_of_pod(&self, ranking: &Ranking) -> Option<f64> {
        let rate = self.request.rate?;
        let each = ranking.predicted.first().map_or(rate, |best| best.goodput);
        Some(rate / (rate / each.max(1e-9)).ceil().max(1.0))
    }

    /// # Errors
    /// [`TuneError::Interrupted`] after SIGINT or SIGTERM.
    pub(crate) fn stop_if_asked(&self) -> Result<(), TuneError> {
        match self.signals.take() {
            0 => Ok(()),
            _ => Err(TuneError::Interrupted),
        }
    }
}

/// Finds a configuration; `tell` gets a line for each step.
///
/// # Errors
/// A bad file or option, an objective that no configuration meets, a server that does not start, a
/// signal.
pub fn tune(request: &TuneRequest, tell: &mut dyn FnMut(&str)) -> Result<Outcome, TuneError> {
    let deployment = Deployment::read(request)?;
    std::fs::create_dir_all(&request.folder).map_err(TuneError::file(&request.folder))?;
    let mut context = Context {
        request,
        deployment,
        cpus: Cpus::read()?,
        begin: Instant::now(),
        signals: Signals::install().map_err(|e| TuneError::Failed(e.to_string()))?,
        tell,
    };
    let mut servers = Servers::new();
    let costs = Costs::measure(&mut context, &mut servers)?;
    let ranking = ranking::rank(&mut context, &costs);
    let mut race = race::run(&mut context, &mut servers, &ranking)?;
    let mut checked = check::run(&mut context, &mut servers, &race)?;
    if request.rate.is_none() && check::is_own_kept(&checked, &race) {
        checked.reverse();
        race.keep(&context.deployment.current);
    }
    servers.keep(&[])?;
    let recipe = recipe::finish(&context, &costs, &ranking, &race);
    Ok(outcome::of(
        &context, &costs, &ranking, race, checked, recipe,
    ))
}
