//! Final measurement: the rates that the chosen and the file's own configuration sustain within the
//! objective, in alternation.

use std::time::Duration;

use albacore_bench::Staircase;
use albacore_statistics::EQUIVALENCE_RATIO;
use serde::Serialize;

use crate::Context;
use crate::configuration::Configuration;
use crate::error::TuneError;
use crate::race::Race;
use crate::server::{Servers, Window};

const WINDOW: Duration = Duration::from_millis(400);

/// Windows per configuration, and the minimum if the time limit is reached.
const WINDOWS: usize = 12;
const WINDOWS_MIN: usize = 5;

/// Initial rate, as a share of the estimated capacity.
const FIRST: f64 = 0.85;

/// Sustained rate of a configuration.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sustained {
    pub configuration: Configuration,
    /// Requests per second at which one of two windows is within the objective.
    pub goodput: f64,
    /// Quartiles of the rates tried last.
    pub quartiles: [f64; 2],
    /// The window with the highest rate that was within the objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<Window>,
}

/// Whether the file's own configuration (the second) is kept: it sustains as much as the chosen
/// one, or the rounds did not separate them and their rate intervals overlap here, too.
pub(crate) fn is_own_kept(sustained: &[Sustained], race: &Race) -> bool {
    let [chosen, own] = sustained else {
        return false;
    };
    let mut arms = race.arms.iter();
    let arm = arms.find(|arm| arm.configuration == own.configuration);
    let is_open = arm.is_some_and(|arm| arm.eliminated_after.is_none());
    let overlaps = own.quartiles[1] >= chosen.quartiles[0];
    own.goodput * EQUIVALENCE_RATIO >= chosen.goodput || (is_open && overlaps)
}

/// Measures the winner, and the file's own configuration if different.
pub(crate) fn run(
    context: &mut Context<'_>,
    servers: &mut Servers,
    race: &Race,
) -> Result<Vec<Sustained>, TuneError> {
    let current = context.deployment.current.clone();
    let winner = &race.arms[race.winner].configuration;
    let mut checked = vec![winner.clone()];
    let own = race.arms.iter().find(|arm| arm.configuration == current);
    if *winner != current && own.is_some_and(|own| own.failed.is_none()) {
        checked.push(current);
    }
    servers.stop_except(&checked.iter().collect::<Vec<_>>())?;
    let carried = |of: &Configuration| {
        let arm = race.arms.iter().find(|arm| arm.configuration == *of);
        let windows = arm.map_or(&[][..], |arm| &arm.windows);
        windows
            .iter()
            .map(|window| window.goodput)
            .fold(1.0, f64::max)
    };
    let first = checked.iter().map(|of| FIRST * carried(of));
    let first: Vec<f64> = first.collect();
    sustained(context, servers, &checked, &first, WINDOWS)
}

/// Sustained rates of these configurations, measured in alternation, from these initial rates;
/// fewer windows if the time limit of the run is reached.
pub(crate) fn sustained(
    context: &mut Context<'_>,
    servers: &mut Servers,
    checked: &[Configuration],
    first: &[f64],
    windows: usize,
) -> Result<Vec<Sustained>, TuneError> {
    let mut stairs: Vec<Staircase> = first.iter().map(|&rate| Staircase::new(rate)).collect();
    let mut best: Vec<Option<Window>> = vec![None; checked.len()];
    for turn in 0..windows {
        let is_over = context.elapsed() > context.request.options.time.as_secs_f64();
        if is_over && turn >= WINDOWS_MIN {
            break;
        }
        for (index, of) in checked.iter().enumerate() {
            context.stop_if_interrupted()?;
            let seed = context
                .request
                .options
                .seed
                .wrapping_add(1_000 + turn as u64);
            let window = servers
                .with(context, of)?
                .window(stairs[index].rate, WINDOW, seed)?;
            let is_within = window.bad <= context.deployment.bad_max();
            stairs[index].record(is_within);
            let is_higher = best[index]
                .as_ref()
                .is_none_or(|best| window.rate > best.rate);
            if is_within && is_higher {
                best[index] = Some(window);
            }
        }
    }
    let sustained = checked.iter().zip(stairs).zip(best);
    Ok(sustained
        .map(|((configuration, stairs), best)| Sustained {
            configuration: configuration.clone(),
            goodput: stairs.threshold(),
            quartiles: stairs.spread(),
            best,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::tests_base;
    use crate::race::Arm;

    #[test]
    fn the_current_configuration_is_kept_without_a_reason_to_change() {
        let own = tests_base();
        let chosen = Configuration {
            workers: 1,
            ..tests_base()
        };
        let race = |eliminated_after| {
            let mut arm = Arm::of_tests(own.clone(), 1.0);
            arm.eliminated_after = eliminated_after;
            Race {
                arms: vec![arm, Arm::of_tests(chosen.clone(), 1.0)],
                rounds: 22,
                winner: 1,
                is_decided: true,
                ended_early: None,
            }
        };
        let sustained = |configuration: &Configuration, [low, goodput, high]: [f64; 3]| Sustained {
            configuration: configuration.clone(),
            goodput,
            quartiles: [low, high],
            best: None,
        };
        let is_kept = |chosen_rates, own_rates, eliminated_after| {
            let both = [sustained(&chosen, chosen_rates), sustained(&own, own_rates)];
            is_own_kept(&both, &race(eliminated_after))
        };
        let better = [110.0, 120.0, 130.0];
        assert!(!is_kept(better, [90.0, 100.0, 105.0], None));
        assert!(is_kept(better, [90.0, 100.0, 115.0], None), "they overlap");
        assert!(
            !is_kept(better, [90.0, 100.0, 115.0], Some(22)),
            "the rounds tell them apart"
        );
        assert!(
            is_kept(better, [110.0, 119.0, 125.0], Some(22)),
            "it sustains as much"
        );
        assert!(
            !is_own_kept(&[sustained(&own, better)], &race(None)),
            "alone"
        );
    }
}
