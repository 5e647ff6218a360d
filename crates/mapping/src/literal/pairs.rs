//! The objective: (4)-(7), with their products linearized.
//!
//! The article omits the linearization. A product z = a b of two binaries is written the standard way:
//! z <= a, z <= b, z >= a + b - 1, z >= 0. Because a sum over cpus is known, namely W mains by (1) and T
//! threads of a worker by (1), the products of one cpu with all others sum to (W-1) a or (T-1) a; this
//! product of (1) with `a` is added as a row. It cuts off no mapping; without it the relaxation says
//! next to nothing, so leaving it out would be no fair comparison.
//!
//! Sums over threads are binary by (2) and (3) where W <= C and T <= C. Elsewhere up to k =
//! ceil(W/C) or ceil(T/C) threads share a cpu: then the cpu has k *seats*, taken in order, and pairs of
//! seats are what pairs of cpus were, two seats of one cpu at the distance of a cpu to itself.

use good_lp::{Expression, constraint, variable};

use super::rules::Rules;
use crate::{Mode, Problem};
use albacore_topology::Topology;

/// (5) plus (scatter) or minus (compact) (7), in clock cycles.
pub(super) fn objective(problem: &Problem, rules: &mut Rules) -> Expression {
    let (workers, threads) = (problem.workers.into(), problem.threads.into());
    let mains = rules.held_each(|_, rank| rank == 0);
    let mut objective = apart(problem, rules, mains, workers);
    for worker in 0..workers {
        let own = rules.held_each(|other, _| other == worker);
        let within = apart(problem, rules, own, threads);
        match problem.mode {
            Mode::Scatter => objective += within,
            Mode::Compact => objective -= within,
        }
    }
    objective
}

/// How many variables the pairs of so many things have.
pub(super) fn size(things: usize, cpus: usize) -> usize {
    if things < 2 {
        return 0;
    }
    let most = things.div_ceil(cpus);
    let seats = cpus * most;
    let own = if most > 1 { seats } else { 0 };
    own + seats * (seats - 1) / 2
}

/// The distances of all pairs of `things` things, of which each cpu holds some, at most
/// ceil(things/C).
fn apart(problem: &Problem, rules: &mut Rules, held: Vec<Expression>, things: usize) -> Expression {
    let mut sum = Expression::from(0);
    if things < 2 {
        return sum;
    }
    let cpus = problem.topology.cpus();
    let seats = seats(problem, rules, held, things.div_ceil(cpus.len()));
    let mut pairs_of: Vec<Expression> = vec![Expression::from(0); seats.len()];
    for (i, (a, at_a)) in seats.iter().enumerate() {
        for (j, (b, at_b)) in seats.iter().enumerate().skip(i + 1) {
            let both = rules.variables.add(variable().min(0).max(1));
            rules.constraints.push(constraint!(both <= a.clone()));
            rules.constraints.push(constraint!(both <= b.clone()));
            rules
                .constraints
                .push(constraint!(both >= a.clone() + b.clone() - 1.0));
            pairs_of[i] += both;
            pairs_of[j] += both;
            let distance = Topology::distance(&cpus[*at_a], &cpus[*at_b], &problem.distances);
            sum += f64::from(distance) * both;
        }
    }
    for (pairs, (seat, _)) in pairs_of.into_iter().zip(&seats) {
        let others = (things - 1) as f64;
        rules
            .constraints
            .push(constraint!(pairs == others * seat.clone()));
    }
    sum
}

/// The seats of all cpus: 1 if taken, and whose they are.
fn seats(
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
    let mut seats = Vec::with_capacity(most * problem.topology.cpus().len());
    for (cpu, sum) in held.into_iter().enumerate() {
        let own = rules.variables.add_vector(variable().binary(), most);
        for pair in own.windows(2) {
            rules.constraints.push(constraint!(pair[1] <= pair[0]));
        }
        let taken: Expression = own.iter().sum();
        rules.constraints.push(constraint!(taken == sum));
        seats.extend(own.into_iter().map(|seat| (Expression::from(seat), cpu)));
    }
    seats
}
