//! Measures candidates in rounds of one window each in random order; those that are significantly
//! behind the best are eliminated from further rounds (successive elimination).
//!
//! Without a fixed rate, each candidate's rate follows a staircase: raised after a window within
//! the objective and lowered after one that is not, so that it stays around the highest sustained
//! rate, which is the score. With a fixed rate all windows offer that rate, and the score is the
//! 99th percentile.

use std::time::Duration;

use albacore_bench::Staircase;
use albacore_random::Xoshiro256;
use albacore_statistics::{
    ArmComparison, CONFIDENCE, EQUIVALENCE_RATIO, Interval, SpeedDifference, compare,
    comparison_rounds,
};
use albacore_values::sentence;

use crate::Context;
use crate::configuration::Configuration;
use crate::error::TuneError;
use crate::ranking::Ranking;
use crate::server::{Servers, Window};

/// Duration of a window, extended up to a limit until it has enough requests.
const WINDOW: Duration = Duration::from_millis(300);
const REQUESTS: f64 = 150.0;
const WINDOW_MAX: Duration = Duration::from_millis(1_500);

/// Initial rounds in which rates converge to the sustained ones; they are not scored.
const WARMUP_ROUNDS: usize = 6;

/// Rounds averaged to one value, because the rates of consecutive rounds are correlated.
const BLOCK: usize = 4;

/// Numbers of values at which candidates are compared. Each comparison has a confidence of 99 %:
/// with few of them, the probability of a false claim is below 5 %.
const COMPARISONS: [usize; 3] = comparison_rounds(8);

/// Final step factor of the rates: about the noise of a window.
const STEP: f64 = 1.06;

/// After this many values, a candidate whose highest sustained rate is below this share of the best
/// is eliminated.
const FAR_BEHIND_VALUES: usize = 2;
const FAR_BEHIND: f64 = 0.7;

/// Initial rate, as a share of the predicted goodput.
const INITIAL_RATE_SHARE: f64 = 0.8;

/// Minimum of the initial rate, as a share of the best prediction: predictions have errors.
const INITIAL_RATE_SHARE_MIN: f64 = 0.4;

/// Share of the time limit after which no round starts: the rest is for the final check.
const TIME_SHARE: f64 = 0.8;

/// Minimum number of measured candidates, however short the time is.
const ARMS_MIN: usize = 2;

/// A candidate in the race.
#[derive(Clone, Debug)]
pub(crate) struct Arm {
    pub(crate) configuration: Configuration,
    pub(crate) windows: Vec<Window>,
    /// Score of each round, as a logarithm.
    scores: Vec<f64>,
    stairs: Staircase,
    /// The round after which it was eliminated.
    pub(crate) eliminated_after: Option<usize>,
    /// Error of its measurement.
    pub(crate) failed: Option<String>,
    /// Ratio of the winner's score to its own, with the 99 % interval; `None` for the winner.
    pub(crate) winner_is_better: Option<[f64; 3]>,
}

impl Arm {
    fn is_racing(&self) -> bool {
        self.eliminated_after.is_none() && self.failed.is_none()
    }

    /// Means of blocks of rounds after the initial ones.
    fn blocks(&self) -> Vec<f64> {
        let counted = self.scores.get(WARMUP_ROUNDS..).unwrap_or_default();
        let mean = |block: &[f64]| block.iter().sum::<f64>() / block.len() as f64;
        counted.chunks_exact(BLOCK).map(mean).collect()
    }

    /// The highest rate of a window within the objective.
    fn highest(&self, bad_max: f64) -> f64 {
        let sustained = self.windows.iter().filter(|window| window.bad <= bad_max);
        sustained.map(|window| window.rate).fold(0.0, f64::max)
    }

    /// The windows within the objective, without the initial rounds; all of these if there is none.
    pub(crate) fn sustained_windows(&self, bad_max: f64) -> Vec<&Window> {
        let counted = self.windows.iter().skip(WARMUP_ROUNDS);
        let sustained: Vec<&Window> = counted.filter(|window| window.bad <= bad_max).collect();
        match sustained.is_empty() {
            true => self.windows.iter().collect(),
            false => sustained,
        }
    }

    /// Geometric mean of the scores.
    pub(crate) fn score(&self) -> Option<f64> {
        let blocks = self.blocks();
        let sum: f64 = blocks.iter().sum();
        (!blocks.is_empty()).then(|| (sum / blocks.len() as f64).exp())
    }
}

#[derive(Debug)]
pub(crate) struct Race {
    pub(crate) arms: Vec<Arm>,
    pub(crate) rounds: usize,
    pub(crate) winner: usize,
    /// Whether the winner is significantly ahead of all others, or equivalent to them.
    pub(crate) is_decided: bool,
    /// Reason of an early end.
    pub(crate) ended_early: Option<String>,
}

/// Maximum share of disturbed windows for a decision.
const DISTURBED_MAX: f64 = 1.0 / 3.0;

impl Race {
    /// Share of disturbed windows, and the cause of one of them.
    pub(crate) fn disturbed(&self) -> (f64, Option<String>) {
        let windows: Vec<&Window> = self.arms.iter().flat_map(|arm| &arm.windows).collect();
        let why: Vec<&String> = windows
            .iter()
            .filter_map(|w| w.disturbed.as_ref())
            .collect();
        let share = why.len() as f64 / windows.len().max(1) as f64;
        (share, why.first().map(|&why| why.clone()))
    }
}

pub(crate) fn run(
    context: &mut Context<'_>,
    servers: &mut Servers,
    ranking: &Ranking,
) -> Result<Race, TuneError> {
    let arms_max = arms_max(context, ranking);
    let promising: Vec<&Configuration> = ranking.promising.iter().take(arms_max).collect();
    servers.stop_except(&promising)?;
    let mut race = Race {
        arms: promising
            .iter()
            .map(|of| arm(context, ranking, of))
            .collect(),
        rounds: 0,
        winner: 0,
        is_decided: false,
        ended_early: None,
    };
    let mut random = Xoshiro256::new(context.request.options.seed, 3);
    // bound: the last comparison, or the time limit
    while !race.is_decided && race.rounds < rounds(COMPARISONS[COMPARISONS.len() - 1]) {
        let end = context.request.options.time.as_secs_f64() * TIME_SHARE;
        if context.elapsed() > end && race.rounds >= rounds(1) {
            break;
        }
        match race.round(context, servers, &mut random) {
            Err(error) if race.has_windows() => {
                race.ended_early = Some(error.reason());
                break;
            }
            done => done?,
        }
        if race.rounds == rounds(FAR_BEHIND_VALUES) && race.disturbed().0 <= DISTURBED_MAX {
            race.eliminate_far_behind(context.deployment.bad_max());
        }
        if COMPARISONS.map(rounds).contains(&race.rounds) {
            race.compare_and_eliminate(context);
        }
    }
    race.finish(context)?;
    Ok(race)
}

/// Number of rounds for this many values of an arm.
const fn rounds(values: usize) -> usize {
    WARMUP_ROUNDS + BLOCK * values
}

fn window_length(rate: f64) -> Duration {
    Duration::from_secs_f64(REQUESTS / rate).clamp(WINDOW, WINDOW_MAX)
}

/// Number of candidates for which the remaining time yields one value each; at least the file's own
/// and the best.
fn arms_max(context: &Context<'_>, ranking: &Ranking) -> usize {
    let best = ranking.predicted.first().map_or(1.0, |of| of.goodput);
    let rate = context
        .rate_of_pod(ranking)
        .unwrap_or(INITIAL_RATE_SHARE * best);
    let value = rounds(1) as f64 * window_length(rate.max(1.0)).as_secs_f64();
    let left = context.request.options.time.as_secs_f64() * TIME_SHARE - context.elapsed();
    ((left / value).max(0.0) as usize).max(ARMS_MIN)
}

fn arm(context: &Context<'_>, ranking: &Ranking, configuration: &Configuration) -> Arm {
    let best = ranking.predicted.first().map_or(1.0, |of| of.goodput);
    let predicted = ranking.of(configuration).map_or(best, |of| of.goodput);
    let rate = (INITIAL_RATE_SHARE * predicted)
        .max(INITIAL_RATE_SHARE_MIN * best)
        .max(1.0);
    Arm {
        configuration: configuration.clone(),
        windows: Vec::new(),
        scores: Vec::new(),
        stairs: Staircase::with_last_step(context.rate_of_pod(ranking).unwrap_or(rate), STEP),
        eliminated_after: None,
        failed: None,
        winner_is_better: None,
    }
}

impl Race {
    fn has_windows(&self) -> bool {
        self.arms.iter().any(|arm| !arm.windows.is_empty())
    }

    fn round(
        &mut self,
        context: &mut Context<'_>,
        servers: &mut Servers,
        random: &mut Xoshiro256,
    ) -> Result<(), TuneError> {
        self.rounds += 1;
        let mut order: Vec<usize> = (0..self.arms.len()).collect();
        for last in (1..order.len()).rev() {
            let other = (random.unit() * (last + 1) as f64) as usize;
            order.swap(last, other);
        }
        let is_fixed = context.request.options.rate.is_some();
        for index in order {
            context.stop_if_interrupted()?;
            let arm = &mut self.arms[index];
            if !arm.is_racing() {
                continue;
            }
            let seed = context
                .request
                .options
                .seed
                .wrapping_add(self.rounds as u64);
            let running = servers.with(context, &arm.configuration);
            let rate = arm.stairs.rate;
            let length = window_length(rate);
            match running.and_then(|running| running.window(rate, length, seed)) {
                Ok(window) => arm.record(window, is_fixed, context.deployment.bad_max()),
                Err(error) => {
                    let failed = sentence(&error);
                    arm.failed = Some(failed.clone());
                    let name = arm.configuration.name();
                    context.report(&format!("{name}: left out: {failed}"));
                }
            }
        }
        if self.rounds == 1 {
            let (arms, most) = (self.arms.len(), rounds(COMPARISONS[COMPARISONS.len() - 1]));
            context.report(&format!(
                "a first round of {arms} candidates, of at most {most} rounds"
            ));
        }
        Ok(())
    }

    /// Eliminates candidates that are far behind, without statistics.
    fn eliminate_far_behind(&mut self, bad_max: f64) {
        let racing = self.arms.iter().filter(|arm| arm.is_racing());
        let best = racing.map(|arm| arm.highest(bad_max)).fold(0.0, f64::max);
        for arm in self.arms.iter_mut().filter(|arm| arm.is_racing()) {
            if arm.highest(bad_max) < FAR_BEHIND * best {
                arm.eliminated_after = Some(self.rounds);
            }
        }
    }

    /// Eliminates candidates that are significantly behind the leader.
    fn compare_and_eliminate(&mut self, context: &mut Context<'_>) {
        let Some(comparison) = ArmComparison::of(&self.racing_blocks(), CONFIDENCE) else {
            return;
        };
        for &index in &comparison.behind {
            self.arms[index].eliminated_after = Some(self.rounds);
        }
        let leader = comparison.leader;
        self.winner = leader;
        self.is_decided = comparison.is_decided;
        let racing = self.arms.iter().filter(|arm| arm.is_racing()).count();
        let (rounds, name) = (self.rounds, self.arms[leader].configuration.name());
        let score = self.arms[leader].score().unwrap_or_default();
        let what = match context.request.options.rate {
            Some(_) => format!("p99 {:.2} ms", 1e3 / score),
            None => format!("{score:.0} requests/s"),
        };
        context.report(&format!(
            "round {rounds}: {racing} candidates left; best: {name}, {what}"
        ));
    }

    fn leader(&self) -> Option<usize> {
        let arms = self.arms.iter().enumerate();
        let scores = arms.filter(|(_, arm)| arm.is_racing());
        let scores = scores.filter_map(|(index, arm)| Some((index, arm.score()?)));
        let best = scores.max_by(|a, b| a.1.total_cmp(&b.1));
        best.map(|(index, _)| index)
    }

    /// Values of the remaining candidates.
    fn racing_blocks(&self) -> Vec<Option<Vec<f64>>> {
        let blocks = |arm: &Arm| arm.is_racing().then(|| arm.blocks());
        self.arms.iter().map(blocks).collect()
    }

    /// Confidence interval of the ratio of scores, paired by round.
    fn compare(&self, one: usize, other: usize) -> Option<Interval> {
        let [one, other] = [one, other].map(|index| self.arms[index].blocks());
        compare(&one, &other, CONFIDENCE)
    }

    /// Makes the file's own configuration the winner.
    pub(crate) fn keep(&mut self, configuration: &Configuration) {
        let own = |arm: &Arm| arm.configuration == *configuration;
        self.winner = self.arms.iter().position(own).unwrap_or(self.winner);
        self.compare_all();
    }

    /// Compares the winner with each of the others.
    fn compare_all(&mut self) {
        for index in 0..self.arms.len() {
            let interval = (index != self.winner).then(|| self.compare(self.winner, index));
            let bounds = interval.flatten().map(|i| [i.ratio, i.low, i.high]);
            self.arms[index].winner_is_better = bounds;
        }
    }

    /// The winner is the leader, or the file's own configuration if it is practically equivalent.
    fn finish(&mut self, context: &Context<'_>) -> Result<(), TuneError> {
        // after an early end without any value, the file's own, which is the first
        let own = self.ended_early.is_some().then_some(0);
        let Some(leader) = self.leader().or(own) else {
            let first = self.arms.iter().find_map(|arm| arm.failed.clone());
            let what = first.unwrap_or_else(|| {
                "no candidate could be measured in this time: give more --time".to_owned()
            });
            return Err(TuneError::Failed(what));
        };
        let best = self.arms[leader].score().unwrap_or_default();
        // no later check covers p99: a difference that may be noise does not justify a change
        let is_fixed = context.request.options.rate.is_some();
        let is_kept = |&index: &usize| {
            let arm = &self.arms[index];
            let is_equal = arm
                .score()
                .is_some_and(|score| score * EQUIVALENCE_RATIO >= best);
            let is_open = || {
                self.compare(leader, index).map(|i| i.speed_difference())
                    != Some(SpeedDifference::Faster)
            };
            let is_own = arm.configuration == context.deployment.current;
            arm.is_racing() && (is_equal || (is_fixed && is_own && is_open()))
        };
        let own = (0..self.arms.len()).find(is_kept);
        self.winner = own.unwrap_or(leader);
        self.is_decided &= self.ended_early.is_none() && self.disturbed().0 <= DISTURBED_MAX;
        self.compare_all();
        Ok(())
    }
}

impl Arm {
    fn record(&mut self, window: Window, is_fixed: bool, bad_max: f64) {
        let score = match is_fixed {
            // refused and late requests make the answered ones faster
            true => (1.0 - window.bad).max(1e-6).ln() - (window.p99_ms / 1e3).max(1e-6).ln(),
            false => window.rate.ln(),
        };
        self.scores.push(score);
        if !is_fixed {
            self.stairs.record(window.bad <= bad_max);
        }
        self.windows.push(window);
    }
}

#[cfg(test)]
impl Arm {
    pub(crate) fn of_tests(configuration: Configuration, rate: f64) -> Self {
        Self {
            configuration,
            windows: Vec::new(),
            scores: Vec::new(),
            stairs: Staircase::with_last_step(rate, STEP),
            eliminated_after: None,
            failed: None,
            winner_is_better: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm_from(rate: f64) -> Arm {
        Arm::of_tests(crate::configuration::tests_base(), rate)
    }

    /// Rounds with candidates that sustain these rates; their windows vary by a few percent.
    fn rounds(sustained: [f64; 2], count: usize, random: &mut Xoshiro256) -> Race {
        let mut race = Race {
            arms: sustained.map(|rate| arm_from(0.6 * rate)).into(),
            rounds: count,
            winner: 0,
            is_decided: false,
            ended_early: None,
        };
        for _ in 0..count {
            for (arm, sustained) in race.arms.iter_mut().zip(sustained) {
                let noise = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
                let rate = arm.stairs.rate;
                let is_within = rate <= sustained * (0.06 * noise).exp();
                let window = Window {
                    rate,
                    bad: if is_within { 0.0 } else { 0.2 },
                    ..Window::default()
                };
                arm.record(window, false, 0.01);
            }
        }
        race
    }

    #[test]
    fn equal_candidates_are_declared_different_in_less_than_one_of_twenty_races() {
        let mut random = Xoshiro256::new(5, 0);
        let mut claims = 0;
        for _ in 0..1_000 {
            let whole = rounds(
                [1_000.0; 2],
                WARMUP_ROUNDS + BLOCK * COMPARISONS[2],
                &mut random,
            );
            let is_claimed = COMPARISONS.iter().any(|&values| {
                let part = Race {
                    arms: whole.arms.iter().map(|arm| first(arm, values)).collect(),
                    ..rounds([1_000.0; 2], 0, &mut Xoshiro256::new(1, 1))
                };
                part.compare(0, 1).unwrap().speed_difference() != SpeedDifference::Inconclusive
            });
            claims += usize::from(is_claimed);
        }
        assert!(claims < 50, "{claims} of 1,000");
    }

    fn first(arm: &Arm, values: usize) -> Arm {
        let mut arm = arm.clone();
        arm.scores.truncate(WARMUP_ROUNDS + BLOCK * values);
        arm
    }

    #[test]
    fn a_candidate_that_sustains_a_tenth_more_is_found() {
        let mut random = Xoshiro256::new(6, 0);
        let race = rounds(
            [1_100.0, 1_000.0],
            WARMUP_ROUNDS + BLOCK * COMPARISONS[2],
            &mut random,
        );
        let interval = race.compare(0, 1).unwrap();
        assert_eq!(
            interval.speed_difference(),
            SpeedDifference::Faster,
            "{interval:?}"
        );
        let score = race.arms[0].score().unwrap();
        assert!((score / 1_100.0 - 1.0).abs() < 0.05, "{score}");
    }
}
