//! The rule `auto` as slowly and obviously as it can be written: everything that happened is kept,
//! and each plan is worked out from its beginning. Floats are added in the order of the crate, so
//! that what both round is equal.

/// Arrivals that a mean remembers, those before a plan, and how often one is made.
const MEMORY: usize = 4096;
const ARRIVALS_MIN: usize = 64;
const PLAN_EVERY: usize = 16;

#[derive(Clone, Copy, Debug)]
enum Happened {
    Arrival { gap: f64, rows: f64 },
    Drop,
}

/// What a queue does by what it learned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// So many rows leave at once; `None` for no number.
    pub(crate) enough: Option<i128>,
    pub(crate) early: i128,
    pub(crate) target: i128,
}

/// Everything that a queue has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    happened: Vec<Happened>,
    last: i128,
}

impl History {
    pub(crate) fn dropped(&mut self) {
        self.happened.push(Happened::Drop);
    }

    /// A new plan, if it is time for one.
    pub(crate) fn arrived(
        &mut self,
        (alpha, beta, objective): (i128, i128, i128),
        now: i128,
        rows: i128,
    ) -> Option<Plan> {
        let (gap, rows) = ((now - self.last) as f64, rows as f64);
        self.last = now;
        self.happened.push(Happened::Arrival { gap, rows });
        let is_arrival = |h: &&Happened| matches!(h, Happened::Arrival { .. });
        let arrivals = self.happened.iter().filter(is_arrival).count();
        (arrivals >= ARRIVALS_MIN && arrivals % PLAN_EVERY == 0)
            .then(|| self.plan(alpha, beta, objective))
    }

    fn plan(&self, alpha: i128, beta: i128, objective: i128) -> Plan {
        let (mut arrivals, mut eagerness) = (0, 0.0_f64);
        let (mut gap_mean, mut square_mean, mut rows_mean) = (0.0, 0.0, 0.0);
        let mut variation = 1.0;
        for happened in &self.happened {
            match *happened {
                Happened::Drop => eagerness = (eagerness + 0.02).min(1.0),
                Happened::Arrival { gap, rows } => {
                    arrivals += 1;
                    let share = 1.0 / arrivals.min(MEMORY) as f64;
                    gap_mean += (gap - gap_mean) * share;
                    square_mean += (gap * gap - square_mean) * share;
                    rows_mean += (rows - rows_mean) * share;
                    variation = square_mean / (gap_mean * gap_mean).max(1.0) - 1.0;
                    variation = f64::max(variation, 1.0);
                    eagerness = (eagerness - 0.02 * 0.002).max(0.0);
                }
            }
        }
        let rate = rows_mean * 1e9 / gap_mean.max(1.0);
        let own = own(alpha, beta, objective, rate);
        let early = (objective as f64 * 0.05 - alpha as f64).max(0.0) as i128;
        let in_a_beta = rate * 1e-9 * beta as f64;
        let worth = in_a_beta / variation;
        if in_a_beta * 32.0 < 1.0 {
            return Plan {
                enough: Some(1),
                early,
                target: own,
            };
        }
        if worth >= own as f64 || eagerness <= 0.0 {
            return Plan {
                enough: None,
                early,
                target: own,
            };
        }
        let own = own as f64;
        let between = |deferred: f64, eager: f64| deferred + (eager - deferred) * eagerness;
        let eager = half(alpha, beta, objective) as f64 * (1.5 - 0.5 / variation);
        Plan {
            enough: Some(between(own, (2.0 * worth).min(own)).ceil().max(1.0) as i128),
            early,
            target: between(own, eager.min(own)).round().max(1.0) as i128,
        }
    }
}

/// The largest batch that, gathered at the rate and then run, takes no longer than the objective;
/// at least 1. The crate shows beside its code that this is the rule of the article.
pub(crate) fn own(alpha: i128, beta: i128, objective: i128, rate: f64) -> i128 {
    let row = alpha as f64 + 1e9 / rate;
    let fits = |rows: &i128| (*rows as f64 - 1e-9) * row <= (objective - beta) as f64;
    (1..=objective).take_while(fits).last().unwrap_or(1)
}

/// The largest batch that takes half of the objective; at least 1.
pub(crate) fn half(alpha: i128, beta: i128, objective: i128) -> i128 {
    let fits = |rows: &i128| alpha * rows + beta <= objective / 2;
    (1..=objective).take_while(fits).last().unwrap_or(1)
}
