//! Result of a run: the contents of `tune.json` and of the report.

use albacore_bench::median;
use albacore_values::sentence;
use serde::Serialize;

use crate::Context;
use crate::calibration::{Costs, Step};
use crate::check::Sustained;
use crate::configuration::Configuration;
use crate::limiting::limit_of;
use crate::pods::Pods;
use crate::prediction::{Limit, Predicted};
use crate::race::{Arm, Race};
use crate::ranking::Ranking;
use crate::server::Window;
use crate::yaml_patch::patched;

/// Format version of `tune.json`.
const FORMAT: u32 = 1;

/// Maximum number of predictions in the results.
const PREDICTED_MAX: usize = 40;

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub format: u32,
    pub version: &'static str,
    pub name: String,
    /// Latency objective, and percentage of requests that must be within it.
    pub objective_ms: f64,
    pub percentile: f64,
    pub mix: String,
    pub arrivals: String,
    /// Number of cpus of the servers.
    pub cpus: usize,
    pub topology: String,
    /// Description of the cpus of servers and load generator.
    pub machine: String,
    pub seconds: f64,
    pub steps: Vec<Step>,
    /// Number of ranked candidates, the time of ranking, and the best predictions.
    pub candidates: usize,
    pub ranking_seconds: f64,
    pub predicted: Vec<Predicted>,
    /// The measured candidates, the file's own first.
    pub measured: Vec<Measured>,
    pub rounds: usize,
    /// Whether the chosen one is significantly ahead of the others, or equivalent to them.
    pub is_decided: bool,
    /// Reason of an early end: then the results contain the measurements so far, and the chosen one
    /// is the best of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
    /// Share of windows in which other processes or a late generator disturbed the measurement.
    pub disturbed: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed_by: Option<String>,
    pub chosen: Configuration,
    pub current: Configuration,
    /// Of the chosen configuration and of the file's own.
    pub sustained: Vec<Sustained>,
    /// Median relative error of the predicted goodput; `None` for a fixed rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Pods>,
    /// The file with the chosen values, or the reason why its layout does not allow them.
    #[serde(skip)]
    pub patched: Result<String, String>,
    /// The original file.
    #[serde(skip)]
    pub text: String,
}

/// A measured candidate.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    pub configuration: Configuration,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_goodput: Option<f64>,
    /// Medians over its windows within the objective.
    pub goodput: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub cpus: f64,
    pub batch_rows: f64,
    pub limit: Limit,
    pub windows: Vec<Window>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eliminated_after: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Ratio of the chosen one's score to this one's, with its 99 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen_is_better: Option<[f64; 3]>,
}

pub(crate) fn of(
    context: &Context<'_>,
    costs: &Costs,
    ranking: &Ranking,
    race: Race,
    sustained: Vec<Sustained>,
    steps: Vec<Step>,
) -> Outcome {
    let deployment = &context.deployment;
    let request = context.request;
    let (disturbed, disturbed_by) = race.disturbed();
    let chosen = race.arms[race.winner].configuration.clone();
    let arms = race.arms.into_iter();
    let measured: Vec<Measured> = arms
        .map(|arm| {
            let limit = limit_of(&arm.windows, costs, &context.cpus);
            measured(arm, ranking, limit, context)
        })
        .collect();
    let errors = measured.iter().filter_map(|of| {
        let predicted = of.predicted_goodput.filter(|_| of.goodput > 0.0)?;
        Some((predicted / of.goodput - 1.0).abs())
    });
    let error = median(errors.collect::<Vec<f64>>());
    let pods = request
        .options
        .rate
        .zip(sustained.first())
        .map(|(rate, of)| Pods::of(rate, of, deployment));
    let replicas = pods.as_ref().and_then(|of| of.replicas);
    Outcome {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION"),
        name: deployment.name.clone(),
        objective_ms: deployment.objective.as_secs_f64() * 1e3,
        percentile: deployment.percentile,
        mix: request.options.mix.clone(),
        arrivals: request.options.arrivals.clone(),
        cpus: context.cpus.count(),
        topology: context.cpus.topology.hash_hex(),
        machine: context.cpus.description(),
        seconds: context.elapsed(),
        steps,
        candidates: ranking.all,
        ranking_seconds: ranking.seconds,
        predicted: ranking
            .predicted
            .iter()
            .take(PREDICTED_MAX)
            .cloned()
            .collect(),
        measured,
        rounds: race.rounds,
        is_decided: race.is_decided,
        ended_early: race.ended_early,
        disturbed,
        disturbed_by,
        patched: patched(
            &request.file,
            &deployment.text,
            &deployment.current,
            &chosen,
            replicas,
        )
        .map_err(|error| sentence(&error)),
        text: deployment.text.clone(),
        current: deployment.current.clone(),
        chosen,
        sustained,
        prediction_error: (request.options.rate.is_none() && error.is_finite()).then_some(error),
        pods,
    }
}

/// With a fixed rate the goodput is the answered part of it.
fn measured(arm: Arm, ranking: &Ranking, limit: Limit, context: &Context<'_>) -> Measured {
    let is_fixed = context.request.options.rate.is_some();
    let bad_max = context.deployment.bad_max();
    let unmeasured = || arm.windows.is_empty().then(|| "not measured".to_owned());
    let failed = arm.failed.clone().or_else(unmeasured);
    // at rates that the candidate sustains, without overload
    let sustained = arm.sustained_windows(bad_max);
    let typical = |value: fn(&Window) -> f64| median(sustained.iter().map(|window| value(window)));
    Measured {
        predicted_goodput: ranking.of(&arm.configuration).map(|of| of.goodput),
        goodput: match is_fixed {
            true => typical(|w| w.goodput),
            false => arm.score().unwrap_or_default(),
        },
        p50_ms: typical(|w| w.p50_ms),
        p99_ms: typical(|w| w.p99_ms),
        cpus: typical(|w| w.cpus),
        batch_rows: typical(|w| w.batch_rows),
        limit,
        configuration: arm.configuration,
        windows: arm.windows,
        eliminated_after: arm.eliminated_after,
        failed,
        chosen_is_better: arm.winner_is_better,
    }
}

impl Outcome {
    /// Result in a few lines.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut lines = Vec::new();
        let is_kept = self.chosen == self.current;
        let (chosen, current) = (self.chosen.name(), self.current.name());
        let rounds = self.rounds;
        lines.push(match is_kept {
            _ if self.ended_early.is_some() => format!(
                "Ended early, in round {rounds}: {chosen} is the best until then, without a last check; the deployment has \
                 {current}."
            ),
            true => format!(
                "Keep {current}: no candidate is better beyond the noise in both the rounds \
                 and the last check."
            ),
            false => format!("Chosen: {chosen}; the deployment has {current}."),
        });
        let own = self
            .measured
            .iter()
            .find(|of| of.configuration == self.current);
        if let Some([ratio, low, high]) = own.and_then(|own| own.chosen_is_better) {
            lines.push(format!(
                "It is {ratio:.2}x as good as the deployment's ({low:.2} to {high:.2} at 99 % confidence)."
            ));
        }
        if let Some(why) = &self.disturbed_by {
            let percent = self.disturbed * 100.0;
            lines.push(format!(
                "{percent:.0} % of the windows were disturbed ({why}): stop other programs for a \
                 more accurate result."
            ));
        }
        if !self.is_decided && self.ended_early.is_none() {
            lines.push(
                "Not decided: the candidates that are left differ by less than the noise of this machine; more --time, or a \
                 quieter machine, would help."
                    .to_owned(),
            );
        }
        for of in &self.sustained {
            let p99 = of.best.as_ref().map_or(String::new(), |best| {
                format!(", p99 {:.2} ms, {:.1} cpus", best.p99_ms, best.cpus)
            });
            lines.push(format!(
                "Sustained within {} ms at {} %: {:.0} requests/s ({}{p99}).",
                self.objective_ms,
                self.percentile,
                of.goodput,
                of.configuration.name()
            ));
        }
        let limit = self
            .measured
            .iter()
            .find(|of| of.configuration == self.chosen);
        if let Some(of) = limit {
            lines.push(format!("Limited by: {}.", of.limit.name()));
        }
        if let Some(error) = self.prediction_error {
            let percent = error * 100.0;
            lines.push(format!(
                "Predictions of goodput differed from measurements by {percent:.0} % in the median."
            ));
        }
        if let Some(pods) = &self.pods {
            lines.push(format!("{}.", pods.text));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
impl Outcome {
    /// Outcome of a run that keeps 2 x 2.
    pub(crate) fn of_tests() -> Self {
        let own = crate::configuration::tests_base();
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            name: "fraud".to_owned(),
            objective_ms: 25.0,
            percentile: 99.0,
            mix: "1".to_owned(),
            arrivals: "poisson".to_owned(),
            cpus: 2,
            machine: String::new(),
            topology: String::new(),
            seconds: 1.0,
            steps: Vec::new(),
            candidates: 0,
            ranking_seconds: 0.0,
            predicted: Vec::new(),
            measured: Vec::new(),
            rounds: 1,
            is_decided: true,
            ended_early: None,
            disturbed: 0.0,
            disturbed_by: None,
            chosen: own.clone(),
            current: own,
            sustained: Vec::new(),
            prediction_error: None,
            pods: None,
            patched: Ok("workers: 2".to_owned()),
            text: "workers: 2".to_owned(),
        }
    }
}
