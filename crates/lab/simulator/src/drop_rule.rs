//! Drop rules: which requests a queue drops so that the others meet their deadlines.

use albacore_batching::Nanos;
use albacore_batching::auto::gathered_rows;
use albacore_batching::deadlines::Cost;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropRule {
    /// Drops the oldest request once it cannot meet its deadline even alone.
    Head,
    /// Also drops the oldest requests that would keep a batch below the target size.
    Window { target: Target },
}

/// Target batch size of the window rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The largest size with which staggered workers serve the queue's own rate in time.
    Own,
    /// The largest size whose batch takes at most half of the objective.
    Half,
    /// This many rows.
    Rows(u64),
}

impl DropRule {
    /// Target batch size in rows, at least 1, for a queue with `rate` rows per second.
    pub fn target_rows(&self, cost: &Cost, objective: Nanos, rate: f64) -> u64 {
        let rows = match self {
            Self::Head => 1,
            Self::Window { target } => match target {
                // l(b) (1 + 1/n) <= objective on n = rate l(b) / b workers, or, if one worker is
                // enough, l(b) + b / rate <= objective. For n > 1 both conditions are the same; a
                // larger b that met only the second with n <= 1 would also meet the first.
                Target::Own => gathered_rows(cost, objective, rate),
                Target::Half => cost.rows_within(Nanos(objective.0 / 2)),
                Target::Rows(rows) => *rows,
            },
        };
        rows.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    #[test]
    fn targets_are_those_of_the_staggered_pattern() {
        let resnet = Cost::new(1.053 * MS, 5.072 * MS);
        let target = |target, rate| {
            let rule = DropRule::Window { target };
            rule.target_rows(&resnet, Nanos(25_000_000), rate)
        };
        assert_eq!(target(Target::Own, 5264.0), 16);
        assert_eq!(target(Target::Own, 0.0), 1);
        assert_eq!(target(Target::Half, 5264.0), 7);
        assert_eq!(target(Target::Rows(3), 5264.0), 3);
        assert_eq!(
            DropRule::Head.target_rows(&resnet, Nanos(25_000_000), 1.0),
            1
        );
    }

    #[test]
    fn the_own_target_equals_its_exhaustive_definition() {
        let slow = |cost: &Cost, objective: f64, rate: f64| -> u64 {
            let l = |b: u64| cost.alpha_ns() * b as f64 + cost.beta_ns();
            let n = |b: u64| (rate * 1e-9 * l(b) / b as f64).max(1.0);
            let largest = |fits: &dyn Fn(u64) -> bool| (1..500).filter(|&b| fits(b)).max();
            let first = largest(&|b| l(b) * (1.0 + 1.0 / n(b)) <= objective).unwrap_or(1);
            if n(first) > 1.0 {
                return first;
            }
            largest(&|b| l(b) + b as f64 * 1e9 / rate <= objective).unwrap_or(1)
        };
        for (alpha, beta) in [
            (1.053, 5.072),
            (5.09, 18.368),
            (0.054, 10.546),
            (7.353, 0.222),
        ] {
            let cost = Cost::new(alpha * MS, beta * MS);
            for objective in [20.0, 25.0, 59.0, 100.0] {
                for rate in [3.0, 17.0, 40.0, 90.0, 333.0, 1000.0, 5264.0] {
                    let rule = DropRule::Window {
                        target: Target::Own,
                    };
                    let rows = rule.target_rows(&cost, Nanos((objective * MS) as u64), rate);
                    assert_eq!(rows, slow(&cost, objective * MS, rate), "{cost:?} {rate}");
                }
            }
        }
    }
}
