//! Measures candidates one by one, without predictions: the baseline of `tune`.

use std::time::Duration;

use crate::Context;
use crate::check::{Sustained, sustained};
use crate::configuration::{Configuration, candidates, thread_counts};
use crate::error::TuneError;
use crate::request::TuneRequest;
use crate::server::Servers;

/// Duration of the closed loop with a few clients, from which the initial rate is derived.
const FEW: Duration = Duration::from_millis(150);
const FEW_CLIENTS: usize = 8;

/// Candidates to be measured.
#[derive(Clone, Debug)]
pub enum Measurement {
    /// All candidates that `tune` ranks, sequentially.
    All,
    /// These, interleaved window by window.
    Beside(Vec<Configuration>),
}

/// Sustained rate of each configuration within the objective, from this number of windows; in the
/// order of the candidates.
///
/// # Errors
/// As [`crate::tune`].
pub fn measure(
    request: &TuneRequest,
    measurement: &Measurement,
    windows: usize,
    on_progress: &mut dyn FnMut(&str),
) -> Result<Vec<Sustained>, TuneError> {
    let mut context = Context::new(request, on_progress)?;
    let mut servers = Servers::new();
    let groups: Vec<Vec<Configuration>> = match measurement {
        Measurement::Beside(all) => vec![all.clone()],
        Measurement::All => {
            let cpus = context.cpus.count();
            let objective = context.deployment.objective.as_micros() as u64;
            let base = &context.deployment.current;
            let all = candidates(base, &thread_counts(cpus), cpus, objective);
            all.into_iter().map(|one| vec![one]).collect()
        }
    };
    let mut found = Vec::new();
    let all = groups.len();
    for (index, group) in groups.iter().enumerate() {
        let mut first = Vec::new();
        for one in group {
            let running = servers.with(&context, one)?;
            let few = running.bench.closed_loop(FEW, FEW_CLIENTS)?;
            first.push((few.sent as f64 / FEW.as_secs_f64()).max(1.0));
        }
        let of = sustained(&mut context, &mut servers, group, &first, windows)?;
        for one in &of {
            let (name, rate) = (one.configuration.name(), one.goodput);
            context.report(&format!(
                "{} of {all}: {name}: {rate:.0} requests/s",
                index + 1
            ));
        }
        found.extend(of);
        servers.stop_except(&[])?;
    }
    Ok(found)
}
