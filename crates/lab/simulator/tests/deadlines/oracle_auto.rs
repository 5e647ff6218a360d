//! The rule `auto` as slowly and obviously as it can be written: everything that happened is kept,
//! and each plan is worked out from its beginning. Floats are added in the order of the crate, so
//! that what both round is equal.

/// Arrivals that a mean remembers, those before a plan, and how often one is made.
const MEMORY: usize = 4096;
const ARRIVALS_MIN: usize = 64;
const PLAN_EVERY: usize = 16;

#[derive(Clone, Copy, Debug)]
enum Happened {
    /// `is_short`: of a queue that prefers short waits at that time.
    Arrival {
        gap: f64,
        rows: f64,
        is_short: bool,
    },
    Drop {
        is_short: bool,
    },
}

/// What a queue does by what it learned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// So many rows leave at once; `None` for no number.
    pub(crate) enough: Option<i128>,
    pub(crate) early: i128,
    pub(crate) target: i128,
}

/// Everything that all queues have seen, in order.
#[derive(Clone, Debug)]
pub(crate) struct History {
    happened: Vec<(usize, Happened)>,
    last: Vec<i128>,
}

/// What is known of a queue at some time.
#[derive(Clone, Debug, Default)]
struct Known {
    arrivals: usize,
    gap_mean: f64,
    square_mean: f64,
    rows_mean: f64,
    eagerness: f64,
    is_bursty: bool,
    /// Turns of the trial so far, and whether clients were seen to wait in that before the last.
    is_deferring: bool,
    is_confirmed: bool,
    confirmed: i32,
    /// How long the deferred turn before was.
    took: f64,
    turn: Vec<f64>,
    eager_turn: Vec<f64>,
}

impl Known {
    fn variation(&self) -> f64 {
        let mean_squared = (self.gap_mean * self.gap_mean).max(1.0);
        f64::max(self.square_mean / mean_squared - 1.0, 1.0)
    }

    fn is_due(&self) -> bool {
        self.arrivals >= ARRIVALS_MIN && self.arrivals.is_multiple_of(PLAN_EVERY)
    }

    fn arrive(&mut self, gap: f64, rows: f64, is_short: bool) {
        self.arrivals += 1;
        let share = 1.0 / self.arrivals.min(MEMORY) as f64;
        self.gap_mean += (gap - self.gap_mean) * share;
        self.square_mean += (gap * gap - self.square_mean) * share;
        self.rows_mean += (rows - self.rows_mean) * share;
        self.eagerness = (self.eagerness - 0.02 * 0.002).max(0.0);
        if !is_short {
            self.turn.push(gap);
        }
    }

    /// Of an eager turn the fastest 768 gaps in a row, without the first.
    fn fastest(turn: &[f64]) -> Option<&[f64]> {
        let sum = |gaps: &[f64]| gaps.iter().sum::<f64>();
        let parts = turn.get(1..).unwrap_or_default().chunks_exact(768);
        parts.reduce(|best, part| if sum(part) < sum(best) { part } else { best })
    }

    fn next_turn(&mut self) {
        let gaps = self.turn.get(1..).unwrap_or_default();
        if !self.is_deferring {
            let length = match self.is_confirmed {
                true => self.took * 2_f64.powi(self.confirmed + 1).min(128.0),
                false => 0.0,
            };
            let fastest = Self::fastest(&self.turn).map(<[f64]>::to_vec);
            if let Some(fastest) = fastest
                && self.turn.iter().sum::<f64>() >= length
            {
                self.eager_turn = fastest;
                self.is_deferring = true;
                self.turn.clear();
            }
            return;
        }
        let is_comparing = gaps.len() >= 64 && gaps.len() <= 16384;
        if is_comparing && are_longer(gaps, &self.eager_turn) {
            (self.is_confirmed, self.confirmed) = (true, self.confirmed + 1);
            self.took = self.turn.iter().sum();
        } else if self.turn.len() >= 131_072 && self.eagerness <= 0.0 {
            (self.is_confirmed, self.confirmed) = (false, 0);
        } else {
            return;
        }
        self.is_deferring = false;
        self.turn.clear();
    }
}

fn are_longer(gaps: &[f64], others: &[f64]) -> bool {
    let mean = |gaps: &[f64]| gaps.iter().sum::<f64>() / gaps.len() as f64;
    let error_squared = |gaps: &[f64]| {
        let squares = gaps.iter().map(|gap| gap * gap).sum::<f64>() / gaps.len() as f64;
        (squares - mean(gaps) * mean(gaps)).max(0.0) / gaps.len() as f64
    };
    let more = mean(gaps) - mean(others);
    let errors = error_squared(gaps) + error_squared(others);
    mean(gaps) > mean(others) * 1.1 && more * more > 16.0 * errors
}

/// What queues with bursts know together.
#[derive(Default)]
struct BurstLevel {
    level: f64,
    queues: u32,
}

impl BurstLevel {
    fn mark(&self) -> f64 {
        35.0 * f64::from(self.queues.max(1))
    }

    fn drop(&mut self) {
        self.level = (self.level + 1.0).min(2.0 * self.mark());
    }

    fn arrive(&mut self) {
        let part = (self.level / (2.0 * self.mark())).min(1.0);
        self.level = (self.level - (0.009 + (0.003 - 0.009) * part)).max(0.0);
    }
}

impl History {
    pub(crate) fn new(queues: usize) -> Self {
        Self {
            happened: Vec::new(),
            last: vec![0; queues],
        }
    }

    pub(crate) fn dropped(&mut self, queue: usize, is_short: bool) {
        self.happened.push((queue, Happened::Drop { is_short }));
    }

    /// A new plan, if it is time for one.
    pub(crate) fn arrived(
        &mut self,
        queue: usize,
        costs: (i128, i128, i128),
        is_short: bool,
        (now, rows): (i128, i128),
    ) -> Option<Plan> {
        let (gap, rows) = ((now - self.last[queue]) as f64, rows as f64);
        self.last[queue] = now;
        let arrival = Happened::Arrival {
            gap,
            rows,
            is_short,
        };
        self.happened.push((queue, arrival));
        let arrival = |h: &&(usize, Happened)| matches!(h.1, Happened::Arrival { .. });
        let arrivals = self
            .happened
            .iter()
            .filter(|h| h.0 == queue)
            .filter(arrival);
        let count = arrivals.count();
        (count >= ARRIVALS_MIN && count % PLAN_EVERY == 0)
            .then(|| self.plan(queue, costs, is_short))
    }

    fn plan(&self, queue: usize, costs: (i128, i128, i128), is_short: bool) -> Plan {
        let mut all = vec![Known::default(); self.last.len()];
        let mut bursts = BurstLevel::default();
        for &(queue, happened) in &self.happened {
            let known = &mut all[queue];
            match happened {
                Happened::Drop { is_short } => {
                    // These traces are too short for anything to be deferred.
                    if !is_short {
                        known.eagerness = (known.eagerness + 0.02).min(1.0);
                    }
                    if known.is_bursty {
                        bursts.drop();
                    }
                }
                Happened::Arrival {
                    gap,
                    rows,
                    is_short,
                } => {
                    known.arrive(gap, rows, is_short);
                    if known.is_bursty {
                        bursts.arrive();
                    }
                    if known.is_due() {
                        if !is_short {
                            known.next_turn();
                        }
                        known.is_bursty = known.variation() > 4.0;
                        bursts.queues = all.iter().filter(|known| known.is_bursty).count() as u32;
                    }
                }
            }
        }
        match is_short {
            true => short_plan_of(&all[queue], costs),
            false => plan_of(&all[queue], &bursts, costs),
        }
    }
}

/// Of a queue that prefers short waits, as long as nothing is deferred.
fn short_plan_of(known: &Known, (alpha, beta, objective): (i128, i128, i128)) -> Plan {
    let rate = known.rows_mean * 1e9 / known.gap_mean.max(1.0);
    let own = own(alpha, beta, objective, rate) as f64;
    let half = half(alpha, beta, objective) as f64;
    let target = (half * (1.5 - 0.5 / known.variation())).min(own).max(half);
    Plan {
        enough: Some(1),
        early: (objective as f64 * 0.05 - alpha as f64).max(0.0) as i128,
        target: target.round() as i128,
    }
}

fn plan_of(
    known: &Known,
    bursts: &BurstLevel,
    (alpha, beta, objective): (i128, i128, i128),
) -> Plan {
    let rate = known.rows_mean * 1e9 / known.gap_mean.max(1.0);
    let own = own(alpha, beta, objective, rate);
    let half = half(alpha, beta, objective);
    let early = (objective as f64 * 0.05 - alpha as f64).max(0.0) as i128;
    let in_a_beta = rate * 1e-9 * beta as f64;
    let worth = in_a_beta / known.variation();
    let plan = |enough, target| Plan {
        enough,
        early,
        target,
    };
    if !known.is_deferring {
        return plan(Some(1), half);
    }
    if in_a_beta * 32.0 < 1.0 {
        return plan(Some(1), own);
    }
    let eagerness = match known.is_bursty {
        true => (bursts.level / bursts.mark() - 1.0).clamp(0.0, 1.0),
        false => known.eagerness,
    };
    if worth >= own as f64 || eagerness <= 0.0 {
        return plan(None, own);
    }
    let own = own as f64;
    let between = |deferred: f64, eager: f64| deferred + (eager - deferred) * eagerness;
    let eager = half as f64 * (1.5 - 0.5 / known.variation());
    let enough = between(own, (2.0 * worth).min(own)).ceil().max(1.0) as i128;
    let target = between(own, eager.min(own)).round().max(1.0) as i128;
    plan(Some(enough), target)
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
