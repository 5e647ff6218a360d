//! The domain subproblem of the Lagrangian bound: every domain partitions its volume into parts.
//!
//! **Problem.** At given multipliers (`lagrangian_bound`), maximize the value of all domains over
//! volumes that sum to WT. **Approach.** For each class, an unbounded knapsack gives the best
//! partition of every volume into parts and the best number of mains for it. The volumes of all
//! domains are then chosen by `volume_knapsack`. **Mains** are counted exactly, with a table for
//! each number of them; or, where that takes too long, by a multiplier of the equation that the
//! mains counted are the parts with a main: a part with a main pays it, and the domain receives it
//! for each main counted. **Crowding.** Of the m mains of a domain with n cpus, all but those on
//! full cpus are on cpus with room for at most ceil(WT/C) - 2 peers beside the main; u is their
//! number. A part of k threads (one of them the main, or none) has at most n - u other cpus, and
//! its main's own, so at least k - main - (n - u) of its threads share a cpu with mains of other
//! workers. These threads pay a multiplier against the available room, with a table for every u.
//! **Proof sketch.** The multipliers of a thread and of mains belong to equations that hold in
//! every mapping, that of crowding to a valid inequality (for ceil(WT/C) = 2 there is no room, and
//! such parts are infeasible), so the optimum at any multipliers is no less than the value of any
//! mapping. If a limit on full units is 0, partitions that need such a unit are excluded.
//! **Limits.** The multiplier of a thread is found by bisection; volumes then differ from WT by
//! less than one domain's choice, which loosens the bound by as much.

use crate::limits::DUAL_WORK_MAX;
use crate::single::domain_classes::Class;
use crate::single::lagrangian_bound::{Dimensions, INFEASIBLE, Multipliers, Pick, SCALE, domains};
use crate::single::volume_knapsack::{
    VolumeChoice, exact_volume_work, exact_volumes, priced_volume_work, priced_volumes,
};

/// The value of the best partitions of all domains; subtracts the parts that they offer from the
/// subgradient.
pub(crate) fn solve_domains(
    classes: &[Class],
    dimensions: Dimensions,
    multipliers: &Multipliers,
    subgradient: &mut Multipliers,
) -> i64 {
    let counting = Counting::affordable(classes, dimensions);
    let partitions: Vec<Partitions> = (0..classes.len())
        .map(|at| {
            let own = ClassMultipliers::of(multipliers, at);
            Partitions::of(&classes[at], dimensions, counting, own)
        })
        .collect();
    // every domain has W parts: those of 0 threads pay their multiplier as well
    let of_empty_parts: i64 = classes
        .iter()
        .zip(&multipliers.parts)
        .map(|(class, parts)| -parts[0][0] * dimensions.workers * class.count as i64)
        .sum();
    let exact = exact_volume_work(classes, dimensions) <= priced_volume_work(classes);
    let allocation = match exact {
        true => exact_volumes(classes, &partitions, dimensions),
        false => priced_volumes(classes, &partitions, dimensions),
    };
    for choice in allocation.choices {
        partitions[choice.class].subtract_choice(choice, dimensions, subgradient);
    }
    allocation.value.saturating_add(of_empty_parts)
}

/// Steps of the dynamic programs in one call of [`solve_domains`].
pub(crate) fn domain_work(classes: &[Class], dimensions: Dimensions) -> usize {
    let volumes = exact_volume_work(classes, dimensions).min(priced_volume_work(classes));
    volumes + partition_work(classes, Counting::affordable(classes, dimensions))
}

/// Steps of the knapsacks of all classes.
fn partition_work(classes: &[Class], counting: Counting) -> usize {
    let of = |class: &Class| {
        let mains = class.mains_most() + 1;
        let rounds = if counting.exact_mains { 2 * mains } else { 1 };
        let tables = if counting.crowding { mains } else { 1 };
        class.capacity.most as usize * class.value.len() * rounds * tables
    };
    classes.iter().map(of).sum()
}

/// Constraints on mains that the partitions count themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counting {
    /// One table for every number of mains; otherwise mains are counted by their multiplier.
    exact_mains: bool,
    /// Tables for every number of cpus that hold a main and are not full.
    crowding: bool,
}

impl Counting {
    /// The tightest way that is cheap enough for many evaluations.
    fn affordable(classes: &[Class], dimensions: Dimensions) -> Self {
        let counts_crowding = dimensions.peers_beside_main.is_some();
        let ways = [(true, true), (false, true), (true, false)];
        ways.into_iter()
            .map(|(exact_mains, crowding)| Self {
                exact_mains,
                crowding,
            })
            .filter(|way| domains(classes) > 1 && (!way.crowding || counts_crowding))
            .find(|&way| partition_work(classes, way) <= DUAL_WORK_MAX / 50)
            .unwrap_or(Self {
                exact_mains: false,
                crowding: false,
            })
    }
}

/// The multipliers of one class.
#[derive(Clone, Copy)]
struct ClassMultipliers<'a> {
    /// Multipliers of parts: `[main or not][k]`.
    parts: &'a [Vec<i64>; 2],
    /// Multipliers of the limits on full cores, and on full cpus, that hold a main.
    full_mains: [i64; 2],
    mains: i64,
    crowding: i64,
}

impl<'a> ClassMultipliers<'a> {
    fn of(multipliers: &'a Multipliers, class: usize) -> Self {
        Self {
            parts: &multipliers.parts[class],
            full_mains: multipliers.full_mains,
            mains: multipliers.mains[class],
            crowding: multipliers.crowding[class],
        }
    }
}

/// The best partition of one volume. Ordered by value; the other fields make ties deterministic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BestPartition {
    pub(crate) value: i64,
    mains: usize,
    /// Number of cpus that hold a main and are not full: the index of the partition's table.
    open_mains: usize,
    /// Number of full cores, and of full cpus, that hold a main.
    full_mains: [i64; 2],
}

/// For every volume, the value of its best partition and the last part of that partition.
struct Knapsack {
    value: Vec<i64>,
    last: Vec<Pick>,
}

/// The best partition of every volume of a class, relative to parts of 0 threads.
pub(crate) struct Partitions {
    counting: Counting,
    /// Indexed by the number of cpus that hold a main and are not full, then by the number of
    /// mains; index 0 if not counted.
    tables: Vec<Vec<Knapsack>>,
    /// Indexed by volume.
    pub(crate) best: Vec<BestPartition>,
    /// Cpus of a domain.
    cpus: usize,
    peers_beside_main: i64,
    /// Whether no core, and no cpu, may be full and hold a main.
    forbids_full: [bool; 2],
    /// Whether rule (12) binds.
    limits_cpus: bool,
}

impl Partitions {
    fn of(
        class: &Class,
        dimensions: Dimensions,
        counting: Counting,
        multipliers: ClassMultipliers<'_>,
    ) -> Self {
        let most = class.capacity.most as usize;
        let mut partitions = Self {
            counting,
            tables: Vec::new(),
            best: Vec::with_capacity(most + 1),
            cpus: class.cpus as usize,
            peers_beside_main: dimensions.peers_beside_main.unwrap_or(0),
            forbids_full: dimensions.full_main_limits.map(|limit| limit == Some(0)),
            limits_cpus: dimensions.full_main_limits[1].is_some(),
        };
        partitions.fill_tables(class, dimensions, multipliers);
        for volume in 0..=most {
            let best = partitions.best_of_volume(class, volume, multipliers);
            partitions.best.push(best);
        }
        partitions
    }

    /// Fills the knapsacks of the class.
    fn fill_tables(
        &mut self,
        class: &Class,
        dimensions: Dimensions,
        multipliers: ClassMultipliers<'_>,
    ) {
        let most = class.capacity.most as usize;
        let mains_most = class.mains_most();
        let open_most = if self.counting.crowding {
            mains_most
        } else {
            0
        };
        for open_mains in 0..=open_most {
            let [peers, mains] = self.part_values(class, dimensions, open_mains, multipliers);
            let table = if self.counting.exact_mains {
                // where no cpu with a main may be full, all mains are on cpus that are not
                let all_open = self.forbids_full[1] && self.counting.crowding;
                let mains_most = if all_open { open_mains } else { mains_most };
                knapsacks_by_mains(most, mains_most, &peers, &mains)
            } else {
                vec![priced_knapsack(most, &peers, &mains, multipliers.mains)]
            };
            self.tables.push(table);
        }
    }

    /// Values of parts without and with a main, given the number of cpus that hold a main and are
    /// not full.
    fn part_values(
        &self,
        class: &Class,
        dimensions: Dimensions,
        open_mains: usize,
        multipliers: ClassMultipliers<'_>,
    ) -> [Vec<i64>; 2] {
        let limits_cores = dimensions.full_main_limits[0].is_some();
        let parts = multipliers.parts;
        [false, true].map(|main| {
            let value = |k: usize| {
                let crowding = self.crowding(open_mains, k, main);
                if crowding > 0 && self.peers_beside_main == 0 {
                    return INFEASIBLE / 1_000;
                }
                let loss = match main && limits_cores {
                    true => class.main_loss[k],
                    false => 0,
                };
                (class.value[k] - loss) * SCALE - parts[usize::from(main)][k] + parts[0][0]
                    - multipliers.crowding * crowding
            };
            (0..class.value.len()).map(value).collect()
        })
    }

    /// Number of threads of a part that must share cpus with mains of other workers.
    fn crowding(&self, open_mains: usize, k: usize, main: bool) -> i64 {
        if !self.counting.crowding || k == 0 {
            return 0;
        }
        let other_cpus = self.cpus - open_mains.min(self.cpus);
        (k - usize::from(main)).saturating_sub(other_cpus) as i64
    }

    fn best_of_volume(
        &self,
        class: &Class,
        volume: usize,
        multipliers: ClassMultipliers<'_>,
    ) -> BestPartition {
        let with_mains = (0..=class.mains_most())
            .filter(|_| volume >= class.capacity.least as usize)
            .filter_map(|mains| self.best_with_mains(class, volume, mains, multipliers));
        with_mains.max().unwrap_or(BestPartition {
            value: INFEASIBLE,
            mains: 0,
            open_mains: 0,
            full_mains: [0; 2],
        })
    }

    /// The best partition of a volume with `mains` mains; `None` if the limits forbid it.
    fn best_with_mains(
        &self,
        class: &Class,
        volume: usize,
        mains: usize,
        multipliers: ClassMultipliers<'_>,
    ) -> Option<BestPartition> {
        let [of_full_core, of_full_cpu] = multipliers.full_mains;
        let [forbids_cores, forbids_cpus] = self.forbids_full;
        let (n, m) = (volume as i64, mains as i64);
        let full_cpus = match self.limits_cpus {
            true => class.full_cpus_needed(n, m),
            false => 0,
        };
        let full_cores = class.full_cores_needed(n, m);
        let full_units = class.full_units_needed(n, m);
        if forbids_cores && full_cores > 0
            || forbids_cpus && full_cpus > 0
            || forbids_cores && forbids_cpus && full_units > 0
        {
            return None;
        }
        // a main on a full core loses nothing: if that outweighs the multiplier, all mains are on
        // full cores
        let core_gain = class.main_loss.iter().copied().max().unwrap_or(0) * SCALE - of_full_core;
        let full_cores = match core_gain > 0 && !forbids_cores {
            true => m.max(full_cores),
            false => full_cores,
        };
        let open_counts = match self.counting.crowding {
            true if forbids_cpus => mains..mains + 1,
            true => 0..(m - full_cpus + 1).max(0) as usize,
            false => 0..1,
        };
        let best = |open_mains: usize| {
            let value = match self.counting.exact_mains {
                true => self.tables[open_mains][mains].value[volume],
                false => self.tables[open_mains][0].value[volume] + multipliers.mains * m,
            };
            let (full_cpus, room) = match self.counting.crowding {
                true => {
                    let room = self.peers_beside_main * open_mains as i64;
                    (m - open_mains as i64, multipliers.crowding * room)
                }
                false => (full_cpus, 0),
            };
            // units that only both rules together require are of the cheaper kind
            let more = (full_units - full_cores - full_cpus).max(0);
            let prefers_cores = !forbids_cores && (forbids_cpus || -core_gain < of_full_cpu);
            let full_mains = match prefers_cores {
                true => [full_cores + more, full_cpus],
                false => [full_cores, full_cpus + more],
            };
            let costs = class.main_closeness[mains] * SCALE + full_mains[1] * of_full_cpu
                - full_mains[0] * core_gain;
            BestPartition {
                value: value + room - costs,
                mains,
                open_mains,
                full_mains,
            }
        };
        open_counts.map(best).max()
    }

    /// Subtracts what some domains of the class offer from the subgradient.
    fn subtract_choice(
        &self,
        choice: VolumeChoice,
        dimensions: Dimensions,
        subgradient: &mut Multipliers,
    ) {
        let VolumeChoice {
            class,
            mut volume,
            domains,
        } = choice;
        let best = self.best[volume];
        for (limit, used) in subgradient.full_mains.iter_mut().zip(best.full_mains) {
            *limit -= used * domains;
        }
        let table = &self.tables[best.open_mains];
        let (mut mains_left, mut parts, mut mains) = (best.mains, 0, 0);
        let mut room = self.peers_beside_main * best.open_mains as i64;
        while volume > 0 {
            let row = if self.counting.exact_mains {
                mains_left
            } else {
                0
            };
            let part = table[row].last[volume];
            let (k, main) = (part.threads().max(1), part.has_main());
            subgradient.parts[class][usize::from(main)][k] -= domains;
            room -= self.crowding(best.open_mains, k, main);
            volume -= k.min(volume);
            mains_left -= usize::from(main).min(mains_left);
            mains += i64::from(main);
            parts += 1;
        }
        subgradient.parts[class][0][0] -= (dimensions.workers - parts) * domains;
        if !self.counting.exact_mains {
            subgradient.mains[class] += (best.mains as i64 - mains) * domains;
        }
        if self.counting.crowding && self.peers_beside_main > 0 {
            subgradient.crowding[class] += room * domains;
        }
    }
}

/// The best partition of every volume up to `most`, where a part with a main pays its multiplier.
fn priced_knapsack(most: usize, peers: &[i64], mains: &[i64], of_main: i64) -> Knapsack {
    let better = |k: usize| match mains[k] - of_main > peers[k] {
        true => (mains[k] - of_main, Pick::with_main(k)),
        false => (peers[k], Pick::without_main(k)),
    };
    let parts: Vec<(i64, Pick)> = (0..peers.len()).map(better).collect();
    let (mut value, mut last) = (vec![INFEASIBLE; most + 1], vec![Pick::default(); most + 1]);
    value[0] = 0;
    for volume in 1..=most {
        for k in 1..parts.len().min(volume + 1) {
            let sum = value[volume - k] + parts[k].0;
            if sum > value[volume] {
                (value[volume], last[volume]) = (sum, parts[k].1);
            }
        }
    }
    Knapsack { value, last }
}

/// The same for exactly 0, 1, ... `mains_most` mains.
fn knapsacks_by_mains(
    most: usize,
    mains_most: usize,
    peers: &[i64],
    mains: &[i64],
) -> Vec<Knapsack> {
    let mut knapsacks: Vec<Knapsack> = Vec::with_capacity(mains_most + 1);
    for _ in 0..=mains_most {
        let fewer = knapsacks.last();
        let (mut value, mut last) = (vec![INFEASIBLE; most + 1], vec![Pick::default(); most + 1]);
        if fewer.is_none() {
            value[0] = 0;
        }
        for volume in 1..=most {
            let (mut best, mut part) = (INFEASIBLE, Pick::default());
            for k in 1..peers.len().min(volume + 1) {
                let sum = value[volume - k] + peers[k];
                if sum > best {
                    (best, part) = (sum, Pick::without_main(k));
                }
                if let Some(fewer) = fewer {
                    let sum = fewer.value[volume - k] + mains[k];
                    if sum > best {
                        (best, part) = (sum, Pick::with_main(k));
                    }
                }
            }
            (value[volume], last[volume]) = (best, part);
        }
        knapsacks.push(Knapsack { value, last });
    }
    knapsacks
}
