//! Random traces, compared with those of the slow model: 5,000, or 100,000 if `ALBACORE_SOAK` is
//! set (`make soak`).

use albacore_batching::Nanos;
use albacore_batching::deadlines::{Cost, Delays, QueueParams, Release};
use albacore_simulator::{DropRule, Target};

use albacore_random::SplitMix64;

use crate::driver::{Driver, Input};
use crate::oracle::{self, Done, Oracle, Request};

/// Draws test cases.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.draw() % end
    }

    fn is_one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

fn draw_rules(random: &mut Random) -> QueueParams {
    let objective = 20 + random.below(200);
    let release = match random.below(5) {
        0 => Release::Eager,
        1 => Release::Timeout {
            delay: Nanos(random.below(objective)),
        },
        2 => Release::Deferred {
            early: Nanos(random.below(objective / 2)),
            window: None,
        },
        3 => Release::Deferred {
            early: Nanos(random.below(objective / 4)),
            window: Some(Nanos(random.below(objective))),
        },
        _ => Release::Deferred {
            early: Nanos(0),
            window: None,
        },
    };
    let window = |target| DropRule::Window { target };
    let drop = match random.below(5) {
        0 => DropRule::Head,
        1 => window(Target::Half),
        2 => window(Target::Own),
        _ => window(Target::Rows(1 + random.below(12))),
    };
    let cost = Cost::new((1 + random.below(12)) as f64, random.below(40) as f64);
    // One row per nanosecond to one per 40: the range of the actual arrival rates.
    let rate = 1e9 / (1 + random.below(40)) as f64;
    let objective = Nanos(objective);
    QueueParams {
        cost,
        objective,
        release,
        target_rows: drop.target_rows(&cost, objective, rate),
        requests_max: if random.is_one_in(4) {
            1 + random.below(6) as usize
        } else {
            usize::MAX
        },
        rows_max: if random.is_one_in(3) {
            1 + random.below(9)
        } else {
            u64::MAX
        },
    }
}

fn oracle_params(rules: &QueueParams) -> oracle::Rules {
    let (alpha, beta) = (rules.cost.alpha_ns() as i128, rules.cost.beta_ns() as i128);
    oracle::Rules {
        alpha,
        beta,
        objective: rules.objective.0.into(),
        release: match rules.release {
            Release::Deferred { early, window } => oracle::Release::Deferred {
                early: early.0.into(),
                window: window.map(|window| window.0.into()),
            },
            Release::Eager => oracle::Release::Timeout { delay: 0 },
            Release::Timeout { delay } => oracle::Release::Timeout {
                delay: delay.0.into(),
            },
        },
        target: rules.target_rows.into(),
        rows_max: rules.rows_max.into(),
        requests_max: rules.requests_max,
    }
}

/// A test case: rules, workers, delays and events.
struct Case {
    rules: Vec<QueueParams>,
    workers: usize,
    delays: Delays,
    inputs: Vec<(u64, Input)>,
}

fn draw(seed: u64) -> Case {
    let mut random = Random(SplitMix64::new(seed));
    let random = &mut random;
    let (queues, requests) = (1 + random.below(5), 1 + random.below(70));
    let rules: Vec<_> = (0..queues).map(|_| draw_rules(random)).collect();
    let workers = 1 + random.below(4) as usize;
    let has_delays = random.is_one_in(3);
    let delays = if has_delays {
        Delays {
            control: Nanos(random.below(10)),
            data: Nanos(random.below(4)),
        }
    } else {
        Delays::default()
    };
    let (is_wide, gap) = (random.is_one_in(3), 1 + random.below(30));
    // Some cases are bursty, some slow down at some time, like closed-loop clients.
    let burst = if random.is_one_in(3) { 20 } else { 2 };
    let slow_from = if random.is_one_in(2) {
        requests / 2
    } else {
        requests
    };
    let (mut now, mut inputs) = (0, Vec::new());
    for key in 1..=requests {
        // Bursts, and events in the same nanosecond.
        let slower = if key > slow_from { 4 } else { 1 };
        now += random.below(gap) * slower * u64::from(random.is_one_in(burst)) * burst / 2;
        let queue = random.below(rules.len() as u64) as usize;
        let rows = if is_wide {
            1 + random.below(4) as u32
        } else {
            1
        };
        inputs.push((now, Input::Arrival { queue, key, rows }));
        if random.is_one_in(12) {
            let key = 1 + random.below(key);
            inputs.push((now, Input::Withdrawal { queue, key }));
        }
        if random.is_one_in(25) {
            let rules = draw_rules(random);
            inputs.push((now, Input::Rules { queue, rules }));
        }
    }
    Case {
        rules,
        workers,
        delays,
        inputs,
    }
}

fn run_fast(case: &Case) -> Vec<Done> {
    let mut driver = Driver::new(&case.rules, case.workers, case.delays);
    for (now, input) in &case.inputs {
        driver.run_until(Nanos(*now));
        driver.take(input, Nanos(*now));
    }
    driver.run_until(Nanos::MAX);
    driver.done
}

fn run_oracle(case: &Case) -> Vec<Done> {
    let rules = case.rules.iter().map(oracle_params).collect();
    let (control, data) = (case.delays.control.0.into(), case.delays.data.0.into());
    let mut slow = Oracle::new(rules, case.workers, control, data);
    let mut now = 0_i128;
    let run_until = |slow: &mut Oracle, now: &mut i128, end: i128| {
        while let Some(next) = slow.next().map(|next| next.max(*now)).filter(|&n| n < end) {
            *now = next;
            slow.act(next);
        }
    };
    for (at, input) in &case.inputs {
        let at = i128::from(*at);
        run_until(&mut slow, &mut now, at);
        now = at;
        match *input {
            Input::Arrival { queue, key, rows } => {
                let (arrival, rows) = (at, rows.into());
                slow.arrive(queue, Request { key, arrival, rows });
            }
            Input::Withdrawal { queue, key } => slow.withdraw(queue, key, at),
            Input::Rules { queue, rules } => slow.set_rules(queue, oracle_params(&rules), at),
        }
    }
    run_until(&mut slow, &mut now, i128::MAX);
    slow.done
}

/// Separates batches from drops, each in order.
fn split(done: Vec<Done>) -> (Vec<Done>, Vec<Done>) {
    done.into_iter()
        .partition(|done| matches!(done, Done::Batch { .. }))
}

#[test]
fn random_traces_equal_those_of_the_slow_model() {
    let is_long = std::env::var_os("ALBACORE_SOAK").is_some();
    let (mut batches, mut drops) = (0, 0);
    for seed in 0..if is_long { 100_000 } else { 5_000 } {
        let case = draw(seed);
        let (fast, slow) = (split(run_fast(&case)), split(run_oracle(&case)));
        assert_eq!(
            fast, slow,
            "seed {seed}: {:?} {:?}",
            case.rules, case.delays
        );
        batches += fast.0.len();
        drops += fast.1.len();
    }
    assert!(
        batches > 10_000 && drops > 10_000,
        "{batches} batches, {drops} drops"
    );
}
