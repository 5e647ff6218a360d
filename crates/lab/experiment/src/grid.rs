//! Windows of an experiment, in random order.
//!
//! A *cell* is a model with W and T: one server. Its windows are within minutes of each other, so
//! that a drift of the machine affects all policies equally: each trial contains every kind of
//! request once, and for each kind every arm, in random order.

use serde::{Deserialize, Serialize};

use albacore_random::Xoshiro256;

use crate::spec::{Policy, Spec};

/// A server to be measured.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Cell {
    pub model: String,
    pub workers: u16,
    pub threads: u16,
}

/// Arm of a window: a policy, or a second run of the kernel's scheduling, whose difference from the
/// first is the noise of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    Kernel,
    KernelAgain,
    RoundRobin,
    Scatter,
    Compact,
    BindSpread,
    BindClose,
}

impl Arm {
    /// Name in tables and charts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::KernelAgain => "kernel again",
            Self::RoundRobin => "round-robin",
            Self::Scatter => "scatter",
            Self::Compact => "compact",
            Self::BindSpread => "bind-spread",
            Self::BindClose => "bind-close",
        }
    }

    pub(crate) fn policy(self) -> Policy {
        match self {
            Self::Kernel | Self::KernelAgain => Policy::Kernel,
            Self::RoundRobin => Policy::RoundRobin,
            Self::Scatter => Policy::Scatter,
            Self::Compact => Policy::Compact,
            Self::BindSpread => Policy::BindSpread,
            Self::BindClose => Policy::BindClose,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct WindowId {
    #[serde(flatten)]
    pub cell: Cell,
    /// Name of the kind.
    pub request: String,
    pub arm: Arm,
    /// Counted from 0.
    pub trial: u32,
}

/// The arms of an experiment, in the order of its policies.
pub(crate) fn arms(spec: &Spec) -> Vec<Arm> {
    let of = |&policy: &Policy| -> &[Arm] {
        match policy {
            Policy::Kernel => &[Arm::Kernel, Arm::KernelAgain],
            Policy::RoundRobin => &[Arm::RoundRobin],
            Policy::Scatter => &[Arm::Scatter],
            Policy::Compact => &[Arm::Compact],
            Policy::BindSpread => &[Arm::BindSpread],
            Policy::BindClose => &[Arm::BindClose],
        }
    };
    spec.policies.iter().flat_map(of).copied().collect()
}

/// All windows, cell by cell.
pub(crate) fn windows(spec: &Spec) -> Vec<(Cell, Vec<WindowId>)> {
    let mut cells: Vec<Cell> = Vec::new();
    for model in &spec.models {
        for &workers in &spec.workers {
            cells.extend(spec.threads.iter().map(|&threads| Cell {
                model: model.name.clone(),
                workers,
                threads,
            }));
        }
    }
    let mut random = Xoshiro256::new(spec.seed, 0);
    shuffle(&mut cells, &mut random);
    let with_windows = |cell: Cell| {
        let windows = windows_of(spec, &cell, &mut random);
        (cell, windows)
    };
    cells.into_iter().map(with_windows).collect()
}

/// Number of windows of a cell.
pub(crate) fn windows_of_cell(spec: &Spec) -> usize {
    spec.trials as usize * spec.requests.len() * arms(spec).len()
}

fn windows_of(spec: &Spec, cell: &Cell, random: &mut Xoshiro256) -> Vec<WindowId> {
    let mut windows = Vec::new();
    for trial in 0..spec.trials {
        let mut requests: Vec<String> = spec.requests.iter().map(|r| r.name()).collect();
        shuffle(&mut requests, random);
        for request in requests {
            let mut arms = arms(spec);
            shuffle(&mut arms, random);
            windows.extend(arms.into_iter().map(|arm| WindowId {
                cell: cell.clone(),
                request: request.clone(),
                arm,
                trial,
            }));
        }
    }
    windows
}

/// Fisher-Yates shuffle.
fn shuffle<T>(items: &mut [T], random: &mut Xoshiro256) {
    for last in (1..items.len()).rev() {
        let other = (random.unit() * (last + 1) as f64) as usize;
        items.swap(last, other.min(last));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn spec() -> Spec {
        serde_json::from_value(serde_json::json!({
            "name": "a", "workers": [1, 2], "threads": [1, 4], "policies": ["kernel", "compact"],
            "models": [{"name": "m", "file": "m.ubj", "features": 2}],
            "requests": [{"rows": 1}, {"rows": 2}], "load": {"clients": 1},
            "trials": 3, "window": "1s",
        }))
        .unwrap()
    }

    #[test]
    fn every_window_occurs_once_and_the_seed_determines_the_order() {
        let cells = windows(&spec());
        let all: Vec<&WindowId> = cells.iter().flat_map(|(_, windows)| windows).collect();
        let distinct: BTreeSet<&WindowId> = all.iter().copied().collect();
        // W x T x kinds x (kernel, kernel again, compact) x trials
        assert_eq!((all.len(), distinct.len()), (72, 72));
        assert_eq!(cells, windows(&spec()));
        let other = Spec { seed: 2, ..spec() };
        assert_ne!(cells, windows(&other));
    }

    #[test]
    fn arms_of_a_trial_are_adjacent() {
        for (_, windows) in windows(&spec()) {
            for group in windows.chunks(3) {
                let keys: BTreeSet<_> = group.iter().map(|w| (&w.request, w.trial)).collect();
                let arms: BTreeSet<Arm> = group.iter().map(|w| w.arm).collect();
                assert_eq!((keys.len(), arms.len()), (1, 3));
            }
        }
    }
}
