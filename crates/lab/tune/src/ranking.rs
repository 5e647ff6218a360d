//! Ranks all candidates by prediction, and selects those to be measured.

use std::time::{Duration, Instant};

use albacore_api::{BatchingPolicy, MainThreadPolicy, PlacementMode};

use crate::Context;
use crate::calibration::Costs;
use crate::configuration::{Configuration, candidates};
use crate::correction::Correction;
use crate::placement::Placements;
use crate::prediction::{Predicted, predict, upper_bound};

/// Time limits of the simulations of sizes, and of all simulations.
const SIZES_TIME: Duration = Duration::from_millis(1_100);
const TIME: Duration = Duration::from_millis(1_800);

/// Number of sizes (W, T and event loops) whose batching is varied, best first.
const VARIED_MAX: usize = 4;

/// Maximum number of measured candidates, including the file's own.
const MEASURED_MAX: usize = 5;

/// Sizes with at least this share of the best prediction are measured: predictions have errors.
const PROMISING: f64 = 0.75;

/// Factor by which a special setting must be predicted better than a usual one to be measured: in
/// one run on 2 cpus policy Deferred was predicted 12 % ahead and sustained a third of its
/// prediction.
const SPECIAL_GAIN_MIN: f64 = 1.25;

/// Result of the ranking.
#[derive(Debug)]
pub(crate) struct Ranking {
    /// Simulated candidates, best first.
    pub(crate) predicted: Vec<Predicted>,
    /// Number of candidates.
    pub(crate) all: usize,
    pub(crate) seconds: f64,
    /// Candidates to be measured, the file's own first.
    pub(crate) promising: Vec<Configuration>,
}

impl Ranking {
    pub(crate) fn of(&self, configuration: &Configuration) -> Option<&Predicted> {
        let mut all = self.predicted.iter();
        all.find(|of| of.configuration == *configuration)
    }
}

/// Simulations with a time limit.
struct Simulations<'a, 'b> {
    context: &'a Context<'b>,
    costs: &'a Costs,
    placements: Placements,
    correction: Correction,
    until: Duration,
    begin: Instant,
    /// Best first.
    predicted: Vec<Predicted>,
}

impl Simulations<'_, '_> {
    fn add(&mut self, configuration: &Configuration) {
        let is_late = self.begin.elapsed() > self.until && !self.predicted.is_empty();
        let known = |of: &Predicted| of.configuration == *configuration;
        if is_late || self.predicted.iter().any(known) {
            return;
        }
        let predicted = predict(
            self.context,
            self.costs,
            &mut self.placements,
            configuration,
        );
        self.predicted
            .extend(predicted.map(|of| self.correction.correct(of)));
        self.predicted
            .sort_by(|a, b| b.goodput.total_cmp(&a.goodput));
    }

    fn bound(&mut self, configuration: &Configuration) -> f64 {
        upper_bound(
            self.context,
            self.costs,
            &mut self.placements,
            configuration,
        )
    }
}

/// First simulates sizes with usual settings, in descending order of their upper bound; then the
/// other settings of the best sizes.
pub(crate) fn rank(context: &mut Context<'_>, costs: &Costs) -> Ranking {
    let begin = Instant::now();
    let current = context.deployment.current.clone();
    let of_threads = costs.by_threads.iter();
    let threads: Vec<u16> = of_threads.map(|of| of.configuration.threads).collect();
    let objective = context.deployment.objective.as_micros() as u64;
    let all = candidates(&current, &threads, context.cpus.count(), objective);
    let mut placements = Placements::default();
    let correction = Correction::of(context, costs, &mut placements);
    let mut simulations = Simulations {
        context,
        costs,
        placements,
        correction,
        until: SIZES_TIME,
        begin,
        predicted: Vec::new(),
    };
    simulations.add(&current);
    let usual = all.iter().filter(|of| is_usual(of));
    let mut sizes: Vec<(f64, &Configuration)> =
        usual.map(|of| (simulations.bound(of), of)).collect();
    sizes.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, configuration) in &sizes {
        simulations.add(configuration);
    }
    let best = simulations.predicted.iter().take(VARIED_MAX);
    let varied: Vec<Configuration> = best.map(|of| of.configuration.clone()).collect();
    simulations.until = TIME;
    for size in &varied {
        let same = all.iter().filter(|of| is_same_size(of, size));
        same.for_each(|of| simulations.add(of));
    }
    let Simulations {
        predicted,
        mut placements,
        ..
    } = simulations;
    let is_same = |one: &Configuration, other: &Configuration| {
        placements.are_equal(&context.cpus, one, other)
    };
    let ranking = Ranking {
        seconds: begin.elapsed().as_secs_f64(),
        all: all.len(),
        promising: promising(&current, &predicted, is_same),
        predicted,
    };
    let best = ranking.predicted.first();
    let best = best.map_or_else(String::new, |best| {
        format!(
            "; best: {}, {:.0} requests/s, limited by {}",
            best.configuration.name(),
            best.goodput,
            best.limit.name()
        )
    });
    let (all, simulated, seconds) = (ranking.all, ranking.predicted.len(), ranking.seconds);
    context.report(&format!(
        "{all} candidates ranked, {simulated} of them simulated, in {seconds:.1} s{best}"
    ));
    ranking
}

/// Whether these are the default settings of a file.
fn is_usual(of: &Configuration) -> bool {
    of.policy == BatchingPolicy::Auto && of.max_rows == 1024
}

fn is_same_size(a: &Configuration, b: &Configuration) -> bool {
    (a.workers, a.threads, a.front_threads) == (b.workers, b.threads, b.front_threads)
}

/// The file's own; the best of each promising W and T; and variants of the best that predictions
/// cannot distinguish: the other mode, if it maps threads differently, and the main thread.
fn promising(
    current: &Configuration,
    predicted: &[Predicted],
    mut is_same: impl FnMut(&Configuration, &Configuration) -> bool,
) -> Vec<Configuration> {
    let best = predicted.first().map_or(0.0, |best| best.goodput);
    let mut chosen = vec![current.clone()];
    let mut seen: Vec<(u16, u16)> = Vec::new();
    for of in predicted.iter().filter(|of| of.goodput >= PROMISING * best) {
        let size = (of.configuration.workers, of.configuration.threads);
        if seen.contains(&size) || chosen.len() >= MEASURED_MAX - 1 {
            continue;
        }
        seen.push(size);
        let simplest = simplest(of, predicted);
        if !chosen.contains(&simplest) {
            chosen.push(simplest);
        }
    }
    let best = chosen.get(1).unwrap_or(current).clone();
    let other_mode = match best.mode {
        PlacementMode::Scatter => PlacementMode::Compact,
        PlacementMode::Compact => PlacementMode::Scatter,
    };
    let other_mode = Configuration {
        mode: other_mode,
        ..best.clone()
    };
    let own_main = Configuration {
        main_thread: MainThreadPolicy::WorkerSet,
        ..best.clone()
    };
    let mut unseen = Vec::new();
    if !is_same(&best, &other_mode) {
        unseen.push(other_mode);
    }
    if best.threads > 1 {
        unseen.push(own_main);
    }
    for variant in unseen {
        if chosen.len() < MEASURED_MAX && !chosen.contains(&variant) {
            chosen.push(variant);
        }
    }
    chosen
}

/// The most usual settings of this W and T that are as good as the best, within the error of the
/// prediction.
fn simplest(best: &Predicted, predicted: &[Predicted]) -> Configuration {
    let size = (best.configuration.workers, best.configuration.threads);
    let same = predicted
        .iter()
        .filter(|of| (of.configuration.workers, of.configuration.threads) == size);
    let good = same.filter(|of| of.goodput * SPECIAL_GAIN_MIN >= best.goodput);
    let simplest = good.min_by_key(|of| {
        let of = &of.configuration;
        let is_special = of.policy != BatchingPolicy::Auto;
        (is_special, of.front_threads.is_some(), of.max_rows != 1024)
    });
    simplest.unwrap_or(best).configuration.clone()
}
