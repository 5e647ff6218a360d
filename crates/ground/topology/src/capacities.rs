//! Relative speed (capacity) of the cores of a machine.
//!
//! The kernel reports cpu capacities only on some architectures (`cpu_capacity`: Arm, RISC-V). On
//! hybrid x86 it lists the cpus of each core type instead, and on servers that mix dense and fast
//! cores of one design only the maximum frequency differs. The first of these sources that
//! distinguishes cores is used. Within one core type, capacities differ by up to a tenth (turbo
//! bins), so all values of at least three quarters of the largest form one class, and so on for the
//! remaining values.

use crate::{CpuId, CpuSet};

/// Capacity of the fastest cores, as in the kernel (`SCHED_CAPACITY_SCALE`).
pub const CAPACITY_MAX: u16 = 1024;

/// Work per clock cycle of an efficiency core relative to a performance core, in thousandths: the
/// ratio of the frequencies of equal performance on Alder Lake, 78,741 kHz and 100,000 kHz
/// (`HYBRID_SCALING_FACTOR_ADL` in the driver intel_pstate).
const EFFICIENCY_PER_CLOCK: u64 = 787;

/// Frequency of efficiency cores relative to performance cores if neither is known, in thousandths:
/// that of desktop processors of 2022, with 4.3 GHz versus 5.4 to 5.8 GHz.
const EFFICIENCY_CLOCK: u64 = 782;

/// Known facts about the speed of the cpus of a machine, by position.
pub(crate) struct SpeedFacts {
    /// `cpu_capacity`.
    pub(crate) capacities: Vec<Option<i64>>,
    /// Maximum frequency in kHz.
    pub(crate) frequencies: Vec<Option<i64>>,
    /// Whether each cpu is on an efficiency core; `None` without lists by core type.
    pub(crate) efficient: Option<Vec<bool>>,
}

impl SpeedFacts {
    /// The capacity of each cpu, rounded up to that of its class; [`CAPACITY_MAX`] for the fastest.
    pub(crate) fn capacities(&self) -> Vec<u16> {
        let frequencies = known(&self.frequencies);
        let by_kind = self.efficient.as_ref().map(|efficient| {
            let of = |(at, &is_efficient): (usize, &bool)| {
                let clock = |efficient: u64| match &frequencies {
                    Some(frequencies) => frequencies[at],
                    None => efficient,
                };
                match is_efficient {
                    true => clock(EFFICIENCY_CLOCK) * EFFICIENCY_PER_CLOCK,
                    false => clock(1000) * 1000,
                }
            };
            efficient.iter().enumerate().map(of).collect()
        });
        let sources = [known(&self.capacities), by_kind, frequencies];
        let classes = sources.into_iter().flatten().map(|speeds| classes(&speeds));
        let differs = |classes: &Vec<u16>| classes.iter().any(|&class| class != CAPACITY_MAX);
        classes
            .into_iter()
            .find(differs)
            .unwrap_or_else(|| vec![CAPACITY_MAX; self.capacities.len()])
    }
}

/// The values, if every cpu has a positive one.
fn known(numbers: &[Option<i64>]) -> Option<Vec<u64>> {
    let positive = |number: &Option<i64>| number.and_then(|number| u64::try_from(number).ok());
    numbers
        .iter()
        .map(|number| positive(number).filter(|&number| number > 0))
        .collect()
}

/// Maps each speed to the fastest of its class, relative to the fastest of all.
fn classes(speeds: &[u64]) -> Vec<u16> {
    let mut sorted = speeds.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let fastest = sorted.first().copied().unwrap_or(1);
    let mut leaders: Vec<u64> = Vec::new();
    for speed in sorted {
        let is_of = |&leader: &u64| u128::from(speed) * 4 >= u128::from(leader) * 3;
        if !leaders.last().is_some_and(is_of) {
            leaders.push(speed);
        }
    }
    let of = |&speed: &u64| {
        let after = leaders.partition_point(|&leader| leader >= speed);
        let leader = u128::from(leaders[after - 1]);
        let share = leader * u128::from(CAPACITY_MAX) / u128::from(fastest);
        (share as u16).max(1)
    };
    speeds.iter().map(of).collect()
}

/// Whether each cpu is in one of the lists.
pub(crate) fn members(ids: &[CpuId], lists: &[CpuSet]) -> Vec<bool> {
    ids.iter()
        .map(|&id| lists.iter().any(|list| list.contains(id)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(capacities: &[i64], frequencies: &[i64], efficient: Option<&[bool]>) -> Vec<u16> {
        let count = capacities.len().max(frequencies.len()).max(2);
        let all = |numbers: &[i64]| match numbers {
            [] => vec![None; count],
            numbers => numbers.iter().copied().map(Some).collect(),
        };
        SpeedFacts {
            capacities: all(capacities),
            frequencies: all(frequencies),
            efficient: efficient.map(<[bool]>::to_vec),
        }
        .capacities()
    }

    #[test]
    fn turbo_bins_are_one_class_and_slower_kinds_are_another() {
        assert_eq!(
            facts(&[1024, 980, 871, 286], &[], None),
            [1024, 1024, 1024, 286]
        );
        // Dense cores of the same design.
        assert_eq!(facts(&[], &[3_700_000, 5_100_000], None), [742, 1024]);
        assert_eq!(facts(&[], &[5_500_000, 5_800_000], None), [1024; 2]);
    }

    #[test]
    fn kinds_count_with_the_work_of_a_cycle() {
        let kinds = Some(&[false, true][..]);
        assert_eq!(facts(&[], &[], kinds), [1024, 630]);
        assert_eq!(facts(&[], &[5_500_000, 4_300_000], kinds), [1024, 630]);
        assert_eq!(facts(&[], &[5_100_000, 2_500_000], kinds), [1024, 395]);
        // The kernel's own capacities have priority if they differ.
        assert_eq!(facts(&[1024, 500], &[], kinds), [1024, 500]);
        assert_eq!(facts(&[1024, 1024], &[], kinds), [1024, 630]);
    }

    #[test]
    fn speed_facts_that_are_incomplete_or_not_numbers_are_ignored() {
        assert_eq!(facts(&[], &[], None), [1024; 2]);
        assert_eq!(facts(&[1024, 0], &[], None), [1024; 2]);
        assert_eq!(facts(&[1024, -5], &[], None), [1024; 2]);
        assert_eq!(facts(&[i64::MAX, 1], &[], None), [1024, 1]);
        let some = SpeedFacts {
            capacities: vec![Some(1024), None],
            frequencies: vec![None, Some(7)],
            efficient: None,
        };
        assert_eq!(some.capacities(), [1024; 2]);
    }
}
