//! Finds the rules that limit the objective: every single change is evaluated, and if one would
//! gain but for a single rule, a hill climb without that rule shows its cost.

use crate::WorkBudget;
use crate::explain::counted_mapping::{Change, CountedMapping};
use crate::explain::rules::Rule;
use crate::limits::{BUDGET_CHECK_EVALUATIONS, CHANGE_STEPS, CLIMB_EVALUATIONS_MAX};

/// Results of all single changes.
pub(crate) struct ChangeSummary {
    /// Per rule: whether there is a change that gains and breaks this rule alone.
    pub(crate) gains: [bool; Rule::ALL.len()],
    /// Number of changes that keep every rule and cost nothing.
    pub(crate) equal: u64,
    /// The change that keeps every rule and gains most.
    pub(crate) better: Option<(Change, i64)>,
    /// The cheapest change that keeps every rule and costs something.
    pub(crate) runner_up: Option<(Change, i64)>,
    /// Whether all changes were tried.
    pub(crate) complete: bool,
}

/// Tries every exchange and every shift.
pub(crate) fn try_all(counted: &CountedMapping<'_>, budget: &mut WorkBudget) -> ChangeSummary {
    let mut tried = ChangeSummary {
        gains: [false; Rule::ALL.len()],
        equal: 0,
        better: None,
        runner_up: None,
        complete: true,
    };
    for thread in 0..counted.threads() {
        if budget.spend(CHANGE_STEPS * (counted.threads() + counted.cpus().len())) {
            tried.complete = false;
            break;
        }
        for change in changes(counted, thread) {
            tried.record(counted, change);
        }
    }
    tried
}

impl ChangeSummary {
    fn record(&mut self, counted: &CountedMapping<'_>, change: Change) {
        let gain = counted.gain(change);
        let broken = counted.broken(change);
        if let Some(rule) = broken.only() {
            self.gains[rule as usize] |= gain > 0;
        }
        if !broken.is_empty() {
            return;
        }
        let keep = |best: &mut Option<(Change, i64)>| {
            if best.is_none_or(|(_, most)| gain > most) {
                *best = Some((change, gain));
            }
        };
        match gain {
            0 => self.equal += 1,
            1.. => keep(&mut self.better),
            _ => keep(&mut self.runner_up),
        }
    }
}

/// Every exchange of a thread with a later one, and every shift of it.
fn changes<'b>(
    counted: &'b CountedMapping<'_>,
    thread: usize,
) -> impl Iterator<Item = Change> + 'b {
    let exchanges = (thread + 1..counted.threads()).map(move |partner| Change {
        thread,
        to: counted.cpu(partner),
        partner: Some(partner),
    });
    let shifts = counted.cpus().iter().map(move |&to| Change {
        thread,
        to: to.into(),
        partner: None,
    });
    exchanges
        .chain(shifts)
        .filter(|&change| counted.is_change(change))
}

/// Gain of a hill climb by changes that keep every rule except `rule`, until none gains or the
/// budget or the work limit per rule is spent.
pub(crate) fn climb_without(
    counted: &CountedMapping<'_>,
    rule: Option<Rule>,
    budget: &mut WorkBudget,
) -> i64 {
    let mut free = counted.clone();
    let (mut gained, mut evaluations, mut idle, mut thread) = (0, 0, 0, 0);
    let count = free.threads();
    // bound: the number of evaluations
    while idle < count {
        let changes = count + free.cpus().len();
        if evaluations > CLIMB_EVALUATIONS_MAX || budget.spend(CHANGE_STEPS * changes) {
            break;
        }
        let mut evaluated = 0;
        let step = changes_of(&free, thread)
            .inspect(|_| evaluated += 1)
            .map(|change| (change, free.gain(change)))
            .filter(|&(change, gain)| gain > 0 && keeps_others(&free, change, rule))
            .max_by_key(|&(_, gain)| gain);
        evaluations += evaluated + BUDGET_CHECK_EVALUATIONS;
        match step {
            Some((change, gain)) => {
                free.apply(change);
                gained += gain;
                idle = 0;
            }
            None => idle += 1,
        }
        thread = (thread + 1) % count;
    }
    gained
}

/// Whether the change keeps every rule except `rule`.
fn keeps_others(counted: &CountedMapping<'_>, change: Change, rule: Option<Rule>) -> bool {
    let broken = counted.broken(change);
    rule.map_or(broken, |rule| broken.without(rule)).is_empty()
}

/// Every exchange and every shift of a thread.
pub(crate) fn changes_of<'b>(
    counted: &'b CountedMapping<'_>,
    thread: usize,
) -> impl Iterator<Item = Change> + 'b {
    let earlier = (0..thread).map(move |partner| Change {
        thread,
        to: counted.cpu(partner),
        partner: Some(partner),
    });
    earlier
        .filter(|&change| counted.is_change(change))
        .chain(changes(counted, thread))
}
