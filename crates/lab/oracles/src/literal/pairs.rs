//! The objective: (4)-(7), with their products linearized.
//!
//! **Problem.** The article omits the linearization "for brevity", and it determines the largest
//! instances that can be solved.
//!
//! **Approach.** A product z = a b of two binaries has the standard linearization: `z <= a`, `z <=
//! b`, `z >= a + b - 1`, `z >= 0`. In addition, constraints of the article are multiplied by a. By
//! (1) there are W mains, or T threads of a worker, on all cpus: the products of one cpu with all
//! others sum to `(W-1) a`, or `(T-1) a`. (8+) and mains-per-core bound the number on a core: the
//! products with the others of its core sum to at most `(U+ - 1) a`, or `(ceil(W/P) - 1) a`.
//!
//! **Proof sketch.** A constraint multiplied by a binary holds wherever the constraint holds, so
//! these rows exclude no mapping.
//!
//! **Limits.** Effect of the rows on the machine of the article, on a busy cpu: 2 x 2 takes HiGHS
//! 0.2 s in either mode and microlp 0.2 to 0.4 s; without them HiGHS has not finished after 54 s,
//! with bounds of 2,300 for 150 and 50 for -50. A comparison without these rows would not be fair.
//!
//! Sums over threads are binary by (2) and (3) if W <= C and T <= C. Otherwise up to k = ceil(W/C)
//! or ceil(T/C) threads share a cpu: then the cpu has k *places*, filled in order, and pairs of
//! places replace pairs of cpus; two places of one cpu are at the distance of a cpu to itself.

use albacore_solver::{Mode, Problem};
use albacore_topology::Topology;
use good_lp::{Expression, constraint, variable};

use super::rules::{OnCore, Rules};

/// (5) plus (scatter) or minus (compact) (7), in clock cycles.
pub(super) fn objective(problem: &Problem, rules: &mut Rules) -> Expression {
    let (workers, threads) = (problem.workers.into(), problem.threads.into());
    let mains = rules.threads_per_cpu(|_, rank| rank == 0);
    let beside = rules.max_per_core(OnCore::Mains);
    let mut objective = sum_of_distances(problem, rules, mains, workers, beside);
    for worker in 0..workers {
        let own = rules.threads_per_cpu(|other, _| other == worker);
        let beside = rules.max_per_core(OnCore::Threads);
        let within = sum_of_distances(problem, rules, own, threads, beside);
        match problem.mode {
            Mode::Scatter => objective += within,
            Mode::Compact => objective -= within,
        }
    }
    objective
}

/// Number of variables for the pairs of `items` items.
pub(super) fn size(items: usize, cpus: usize) -> usize {
    if items < 2 {
        return 0;
    }
    let most = items.div_ceil(cpus);
    let terms = cpus * most;
    let own = if most > 1 { terms } else { 0 };
    own + terms * (terms - 1) / 2
}

/// Sum of the distances of all pairs of `items` items. `held` counts the items of each cpu, at most
/// ceil(items/C); a core holds at most `on_core`.
fn sum_of_distances(
    problem: &Problem,
    rules: &mut Rules,
    held: Vec<Expression>,
    items: usize,
    on_core: u32,
) -> Expression {
    let mut sum = Expression::from(0);
    if items < 2 {
        return sum;
    }
    let cpus = problem.topology.cpus();
    let terms = terms(problem, rules, held, items.div_ceil(cpus.len()));
    let mut pairs_of: Vec<Expression> = vec![Expression::from(0); terms.len()];
    let mut core_pairs_of = pairs_of.clone();
    for (i, (a, at_a)) in terms.iter().enumerate() {
        for (j, (b, at_b)) in terms.iter().enumerate().skip(i + 1) {
            let both = rules.variables.add(variable().min(0).max(1));
            rules.constraints.push(constraint!(both <= a.clone()));
            rules.constraints.push(constraint!(both <= b.clone()));
            rules
                .constraints
                .push(constraint!(both >= a.clone() + b.clone() - 1.0));
            pairs_of[i] += both;
            pairs_of[j] += both;
            if cpus[*at_a].core == cpus[*at_b].core {
                core_pairs_of[i] += both;
                core_pairs_of[j] += both;
            }
            let distance = Topology::distance(&cpus[*at_a], &cpus[*at_b], &problem.distances);
            sum += f64::from(distance) * both;
        }
    }
    let (others, beside) = ((items - 1) as f64, f64::from(on_core.max(1) - 1));
    for (i, (term, _)) in terms.iter().enumerate() {
        let (all, core) = (pairs_of[i].clone(), core_pairs_of[i].clone());
        rules
            .constraints
            .push(constraint!(all == others * term.clone()));
        rules
            .constraints
            .push(constraint!(core <= beside * term.clone()));
    }
    sum
}

/// The places of all cpus: an expression that is 1 if the place is taken, and its cpu.
fn terms(
    problem: &Problem,
    rules: &mut Rules,
    held: Vec<Expression>,
    most: usize,
) -> Vec<(Expression, usize)> {
    if most == 1 {
        return held
            .into_iter()
            .enumerate()
            .map(|(cpu, sum)| (sum, cpu))
            .collect();
    }
    let mut terms = Vec::with_capacity(most * problem.topology.cpus().len());
    for (cpu, sum) in held.into_iter().enumerate() {
        let own = rules.variables.add_vector(variable().binary(), most);
        for pair in own.windows(2) {
            rules.constraints.push(constraint!(pair[1] <= pair[0]));
        }
        let taken: Expression = own.iter().sum();
        rules.constraints.push(constraint!(taken == sum));
        terms.extend(own.into_iter().map(|term| (Expression::from(term), cpu)));
    }
    terms
}
