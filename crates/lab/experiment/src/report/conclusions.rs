//! Conclusions from the results, as sentences: gains, losses and undecided questions.

use std::collections::BTreeMap;

use crate::comparison::{Comparison, Subscription, compare, pooled};
use crate::grid::Arm;
use crate::journal::Results;
use albacore_statistics::{Interval, SpeedDifference};

use super::{format_ratio, reference};

/// Maximum share of comparisons of the kernel with itself that show a difference.
const NOISE_MAX: f64 = 0.05;

/// Maximum share of disturbed windows.
const DISTURBED_MAX: f64 = 0.2;

/// All conclusions; the quality of the measurement is first.
pub(super) fn of(results: &Results) -> Vec<String> {
    if results.windows.is_empty() {
        return vec!["Nothing was measured.".to_owned()];
    }
    let mut conclusions = quality(results);
    let (reference, others) = reference(results);
    for &arm in others.iter().filter(|&&arm| arm != Arm::KernelAgain) {
        conclusions.extend(of_arm(results, arm, reference));
    }
    conclusions.extend(compact_or_scatter(results));
    conclusions
}

/// Whether noise and disturbances are low enough.
fn quality(results: &Results) -> Vec<String> {
    let mut said = Vec::new();
    let windows = results.windows.len();
    let disturbed = results.windows.iter().filter(|w| w.disturbed.is_some());
    let disturbed = disturbed.count();
    let same = compare(results, Arm::KernelAgain, Arm::Kernel);
    let claims = same
        .iter()
        .filter(|one| one.interval.speed_difference() != SpeedDifference::Inconclusive);
    let claims = claims.count();
    if let Some(all) = pooled(&same) {
        said.push(format!(
            "Noise: the kernel's scheduling compared with itself differs in {claims} of {} settings; over all of them \
             {}.",
            same.len(),
            format_ratio(&all)
        ));
    }
    let missing: usize = results.failed.iter().map(|failed| failed.windows).sum();
    let lost = match missing {
        0 => String::new(),
        missing => format!(" {missing} windows are missing: see the failures below."),
    };
    said.push(format!(
        "{windows} windows were measured, {disturbed} of them disturbed by something else.{lost}"
    ));
    let noise = claims as f64 / same.len().max(1) as f64;
    if noise > NOISE_MAX || disturbed as f64 / windows as f64 > DISTURBED_MAX {
        said.push(
            "This machine is too noisy to decide: treat the following as hints. It would help to \
             stop other programs, to use a machine whose cpus are not shared, or to measure longer \
             windows and more trials."
                .to_owned(),
        );
    }
    said
}

fn of_arm(results: &Results, arm: Arm, reference: Arm) -> Vec<String> {
    let comparisons = compare(results, arm, reference);
    let Some(all) = pooled(&comparisons) else {
        return vec![format!(
            "{}: no setting has two trials to compare with {}.",
            arm.name(),
            reference.name()
        )];
    };
    let count = |difference: SpeedDifference| {
        let of = comparisons
            .iter()
            .filter(|one| one.interval.speed_difference() == difference);
        of.count()
    };
    let mut said = vec![format!(
        "{} compared with {}: p99 {} in the mean of {} settings: {}. It is better in {} settings, \
         worse in {}, and in {} nothing can be claimed.",
        arm.name(),
        reference.name(),
        format_ratio(&all),
        comparisons.len(),
        verdict(&all),
        count(SpeedDifference::Faster),
        count(SpeedDifference::Slower),
        count(SpeedDifference::Inconclusive),
    )];
    let cpus = results.header.machine.cpus;
    for (group, members) in by_subscription(&comparisons, cpus) {
        if let Some(interval) = pooled(members) {
            let verdict = verdict(&interval);
            said.push(format!(
                "{} compared with {}, {}: {}: {verdict}.",
                arm.name(),
                reference.name(),
                group.name(),
                format_ratio(&interval)
            ));
        }
    }
    said
}

fn by_subscription(
    comparisons: &[Comparison],
    cpus: usize,
) -> BTreeMap<Subscription, Vec<&Comparison>> {
    let mut groups: BTreeMap<Subscription, Vec<&Comparison>> = BTreeMap::new();
    for one in comparisons {
        let group = Subscription::of(&one.setting, cpus);
        groups.entry(group).or_default().push(one);
    }
    groups
}

/// Compares the modes of a deployment, by model and threads per worker.
fn compact_or_scatter(results: &Results) -> Vec<String> {
    let comparisons = compare(results, Arm::Compact, Arm::Scatter);
    let mut groups: BTreeMap<(&str, u16), Vec<&Comparison>> = BTreeMap::new();
    for one in &comparisons {
        let key = (one.setting.model.as_str(), one.setting.threads);
        groups.entry(key).or_default().push(one);
    }
    let said = groups.into_iter().filter_map(|((model, threads), members)| {
        let interval = pooled(members)?;
        let answer = match interval.speed_difference() {
            SpeedDifference::Faster => "yes",
            SpeedDifference::Slower => "no, Scatter beats it",
            SpeedDifference::Inconclusive => "open",
        };
        let plural = if threads == 1 { "" } else { "s" };
        Some(format!(
            "Compact beats Scatter for model {model} and {threads} thread{plural} a worker: {answer}; {}.",
            format_ratio(&interval)
        ))
    });
    said.collect()
}

fn verdict(interval: &Interval) -> &'static str {
    match interval.speed_difference() {
        SpeedDifference::Faster => "faster",
        SpeedDifference::Slower => "slower",
        SpeedDifference::Inconclusive => "no difference can be claimed",
    }
}
