//! Construction and local search.
//!
//! **Problem.** Assign models to sub-clusters so that the largest deviations of rate and memory
//! from their means are small, within the limits. Deciding whether a feasible partition exists is
//! NP-hard.
//!
//! **Approach.** Models of the partition in force stay; the others are placed in descending order
//! of size where they add least to the sum of squared deviations. Then local search: moves of one
//! model and exchanges of two between pairs of sub-clusters, each accepted if it reduces the sum of
//! the fourth powers of the deviations, which the largest ones dominate. Pairs are visited in order
//! of the difference of their deviations, round by round, until no round gains anything or the
//! budget is spent.
//!
//! **Proof sketch.** Every step keeps the limits, or reduces the total excess over them, which has
//! priority over the penalty. Each round is finite and each step reduces a number that is bounded
//! below.
//!
//! **Limits.** With tight limits, a feasible partition may exist but not be found; the result is
//! validated by [`crate::check`].

use crate::limits::BARREN_ROUNDS_MAX;
use crate::problem::Problem;

/// Content of a sub-cluster.
#[derive(Clone, Debug, Default)]
struct Cluster {
    models: Vec<usize>,
    rate: f64,
    memory: f64,
}

struct Search<'a> {
    problem: &'a Problem,
    clusters: Vec<Cluster>,
    rate: f64,
    memory: f64,
    /// Cost of changes so far.
    spent: f64,
}

/// Returns the best partition found while `has_budget` returns true.
pub fn search(problem: &Problem, has_budget: &mut dyn FnMut() -> bool) -> Vec<usize> {
    let (rate, memory) = problem.means();
    let mut search = Search {
        problem,
        clusters: vec![Cluster::default(); problem.clusters],
        rate,
        memory,
        spent: 0.0,
    };
    search.construct();
    let mut barren = 0;
    while barren < BARREN_ROUNDS_MAX && has_budget() {
        if !search.round(barren, has_budget) {
            barren += 1;
            // Every pair was visited in consecutive rounds without a gain: a local optimum.
            if barren as usize >= problem.clusters {
                break;
            }
        } else {
            barren = 0;
        }
    }
    search.into_assignment()
}

impl Search<'_> {
    fn construct(&mut self) {
        let current = self.problem.current.as_ref();
        let before = |model: usize| current.and_then(|current| current.clusters[model]);
        let mut open: Vec<usize> = Vec::new();
        for model in 0..self.problem.models.len() {
            match before(model) {
                Some(place) => self.add_model(model, place),
                None => open.push(model),
            }
        }
        let size = |&model: &usize| {
            let model = &self.problem.models[model];
            model.rate / self.rate + self.problem.weight.min(1.0) * model.memory / self.memory
        };
        open.sort_by(|a, b| size(b).total_cmp(&size(a)));
        for model in open {
            if current.is_some() {
                self.spent += self.problem.models[model].change_cost;
            }
            let m = &self.problem.models[model];
            let (rate, memory) = (m.rate, m.memory);
            let cost = |place: &usize| {
                let cluster = &self.clusters[*place];
                let above = self.excess(cluster, rate, memory, &[], Some(model));
                let r = (cluster.rate + rate) / self.rate;
                let s = (cluster.memory + memory) / self.memory;
                (above, r * r + self.problem.weight * s * s)
            };
            let best = (0..self.clusters.len()).min_by(|a, b| {
                let (a, b) = (cost(a), cost(b));
                a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
            });
            self.add_model(model, best.unwrap_or(0));
        }
    }

    fn add_model(&mut self, model: usize, place: usize) {
        let m = &self.problem.models[model];
        let cluster = &mut self.clusters[place];
        cluster.models.push(model);
        cluster.rate += m.rate;
        cluster.memory += m.memory;
    }

    /// Excess of a sub-cluster over its limits with this additional rate and memory, with the
    /// running memory of its models except `without`, plus `with`.
    fn excess(
        &self,
        cluster: &Cluster,
        rate: f64,
        memory: f64,
        without: &[usize],
        with: Option<usize>,
    ) -> f64 {
        let limits = &self.problem.limits;
        let mut above = 0.0;
        if limits.rate.is_finite() {
            above += (cluster.rate + rate - limits.rate).max(0.0) / self.rate;
        }
        if limits.memory.is_finite() {
            let staying = cluster
                .models
                .iter()
                .filter(|model| !without.contains(model));
            let running = staying.chain(with.as_ref());
            let running = running.map(|&model| self.problem.models[model].running_memory);
            let running = running.fold(0.0, f64::max);
            above += (cluster.memory + memory + running - limits.memory).max(0.0) / self.memory;
        }
        // Ignores the rounding error of an exact fit.
        if above < 1e-12 { 0.0 } else { above }
    }

    /// Fourth powers of the deviations of a sub-cluster with this additional rate and memory.
    fn penalty(&self, cluster: &Cluster, rate: f64, memory: f64) -> f64 {
        let r = ((cluster.rate + rate) / self.rate - 1.0).powi(2);
        let s = ((cluster.memory + memory) / self.memory - 1.0).powi(2);
        r * r + self.problem.weight * s * s
    }

    /// Improves pairs of sub-clusters; `shift` selects the pairing in the order of deviations.
    fn round(&mut self, shift: u32, has_budget: &mut dyn FnMut() -> bool) -> bool {
        let count = self.clusters.len();
        let mut order: Vec<usize> = (0..count).collect();
        let signed =
            |c: &Cluster| c.rate / self.rate + self.problem.weight * c.memory / self.memory;
        order.sort_by(|&a, &b| signed(&self.clusters[a]).total_cmp(&signed(&self.clusters[b])));
        let mut has_gained = false;
        for i in 0..count {
            let j = (count - 1 - i + shift as usize) % count;
            let (a, b) = (order[i], order[j]);
            // A pair is improved until no better exchange exists; each one reduces the penalty.
            while a != b && has_budget() && self.improve_pair(a, b) {
                has_gained = true;
            }
        }
        has_gained
    }

    /// Applies the best move or exchange between two sub-clusters, if it is an improvement.
    fn improve_pair(&mut self, a: usize, b: usize) -> bool {
        let models = &self.problem.models;
        let (left, right) = (&self.clusters[a], &self.clusters[b]);
        let now = (
            self.excess(left, 0.0, 0.0, &[], None) + self.excess(right, 0.0, 0.0, &[], None),
            self.penalty(left, 0.0, 0.0) + self.penalty(right, 0.0, 0.0),
        );
        let mut best = (now, None);
        let none = [None];
        let lefts = || left.models.iter().copied().map(Some).chain(none);
        let rights = || right.models.iter().copied().map(Some).chain(none);
        for x in lefts() {
            let (xr, xs) = x.map_or((0.0, 0.0), |x| (models[x].rate, models[x].memory));
            for y in rights() {
                let (yr, ys) = y.map_or((0.0, 0.0), |y| (models[y].rate, models[y].memory));
                let (rate, memory) = (yr - xr, ys - xs);
                let penalty =
                    self.penalty(left, rate, memory) + self.penalty(right, -rate, -memory);
                if now.0 == 0.0 && penalty >= best.0.1 * (1.0 - 1e-9) {
                    continue;
                }
                if !self.is_affordable(x, y, a, b) {
                    continue;
                }
                let out = |model: Option<usize>| model.map_or([usize::MAX], |model| [model]);
                let above = self.excess(left, rate, memory, &out(x), y)
                    + self.excess(right, -rate, -memory, &out(y), x);
                if above < best.0.0 || above == best.0.0 && penalty < best.0.1 * (1.0 - 1e-9) {
                    best = ((above, penalty), Some((x, y)));
                }
            }
        }
        match best.1 {
            Some((x, y)) => {
                self.exchange(a, b, x, y);
                true
            }
            None => false,
        }
    }

    /// Change of the total change cost if a model is moved.
    fn change_cost_delta(&self, model: Option<usize>, from: usize, to: usize) -> f64 {
        let (Some(model), Some(current)) = (model, &self.problem.current) else {
            return 0.0;
        };
        let cost = self.problem.models[model].change_cost;
        match current.clusters[model] {
            Some(before) if before == from => 2.0 * cost,
            Some(before) if before == to => -2.0 * cost,
            _ => 0.0,
        }
    }

    fn is_affordable(&self, x: Option<usize>, y: Option<usize>, a: usize, b: usize) -> bool {
        let limit = match &self.problem.current {
            Some(current) => current.cost_max,
            None => return true,
        };
        let delta = self.change_cost_delta(x, a, b) + self.change_cost_delta(y, b, a);
        delta <= 0.0 || self.spent + delta <= limit * (1.0 + 1e-12)
    }

    fn exchange(&mut self, a: usize, b: usize, x: Option<usize>, y: Option<usize>) {
        self.spent += self.change_cost_delta(x, a, b) + self.change_cost_delta(y, b, a);
        for (model, from, to) in [(x, a, b), (y, b, a)] {
            if let Some(model) = model {
                self.clusters[from].models.retain(|&other| other != model);
                self.add_model(model, to);
            }
        }
        // Sums are recomputed, so that rounding errors do not accumulate over many steps.
        for place in [a, b] {
            let cluster = &mut self.clusters[place];
            let all = || {
                cluster
                    .models
                    .iter()
                    .map(|&model| &self.problem.models[model])
            };
            let (rate, memory) = (all().map(|m| m.rate).sum(), all().map(|m| m.memory).sum());
            (cluster.rate, cluster.memory) = (rate, memory);
        }
    }

    fn into_assignment(self) -> Vec<usize> {
        let mut assignment = vec![0; self.problem.models.len()];
        for (place, cluster) in self.clusters.iter().enumerate() {
            for &model in &cluster.models {
                assignment[model] = place;
            }
        }
        assignment
    }
}
