//! The domains' side of the bargain (`prices`): every domain splits its volume into parts.
//!
//! **Problem.** At given prices, the most that all domains can make of volumes that sum to WT.
//! **Approach.** For each class a table of volumes: the best parts that sum to it, and the best
//! number of mains for it. Then volumes, in one of two ways: from a table over domains and threads,
//! or each domain for itself at a price of a thread. **Mains** are counted exactly, with a table
//! for each number of them; or, where that takes long, at a toll: a main part pays it and the
//! domain is paid it for each main that it counts, so that for a true split the two cancel.
//! **Beside mains.** Of the m mains of a domain with n cpus, all but those with a permit lie on
//! cpus that are not full: u = m - permits of them, with room for at most ceil(WT/C) - 2 threads
//! beside each main. A part of k threads (one of them the main, or none) has at most n - u other
//! cpus, and its main's own, so at least k - main - (n - u) of it must go beside mains of others: a
//! fine on these threads, against the room that there is, with a table of its own for every u.
//! **Proof sketch.** The price of a thread and the toll are multipliers of equations that hold in
//! every mapping (volumes sum to WT; main parts are mains), the fine one of an inequality that does
//! (for ceil(WT/C) = 2 there is no room, and such parts are left out), so the best at any such
//! price is no less than that of a mapping. Without a permit at all, splits that need one are left
//! out. **Limits.** A price of a thread is found by halving a range; volumes then differ from WT by
//! less than one domain's choice, which the bound pays for.

use crate::classes::Class;
use crate::limits::PRICE_WORK_MAX;
use crate::prices::{MAIN, NEVER, Prices, SCALE, Sizes, domains};

/// Halvings of the price of a thread.
const BISECTIONS: u32 = 48;
/// Above what a thread can be worth, in price units.
const STEEPEST: i64 = 1 << 46;

/// Looks at parts and volumes when all classes are split once.
pub(crate) fn work_of_splits(classes: &[Class], sizes: Sizes) -> usize {
    let volumes = volume_work(classes, sizes).min(BISECTIONS as usize * volumes_of(classes));
    volumes + split_work(classes, Count::of(classes, sizes))
}

/// How a domain's mains are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Count {
    /// One table for every number of mains. Else mains are counted at a toll: main parts pay it,
    /// and as many mains as are best for the domain get it.
    exact: bool,
    /// Whether what must go beside mains is counted: tables for every number of cpus that have a
    /// main and are not full.
    beside: bool,
}

impl Count {
    fn of(classes: &[Class], sizes: Sizes) -> Self {
        let several = domains(classes) > 1;
        [(true, true), (false, true), (true, false)]
            .into_iter()
            .map(|(exact, beside)| Self { exact, beside })
            .filter(|count| several && (!count.beside || sizes.beside.is_some()))
            .find(|&count| split_work(classes, count) <= PRICE_WORK_MAX / 50)
            .unwrap_or(Self {
                exact: false,
                beside: false,
            })
    }
}

/// Looks at parts when all classes are split once.
fn split_work(classes: &[Class], count: Count) -> usize {
    let of = |class: &Class| {
        let mains = class.main_counts.1 as usize + 1;
        let rounds = if count.exact { 2 * mains } else { 1 };
        let tables = if count.beside { mains } else { 1 };
        class.volumes.1 as usize * class.worth.len() * rounds * tables
    };
    classes.iter().map(of).sum()
}

/// Volumes of all classes.
fn volumes_of(classes: &[Class]) -> usize {
    let of = |class: &Class| (class.volumes.1 - class.volumes.0 + 1) as usize;
    classes.iter().map(of).sum()
}

/// Looks at volumes when they are summed exactly.
fn volume_work(classes: &[Class], sizes: Sizes) -> usize {
    let of = |class: &Class| class.count * (class.volumes.1 - class.volumes.0 + 1) as usize;
    (extras(classes, sizes) + 1) * classes.iter().map(of).sum::<usize>()
}

/// Threads beyond the least that all domains hold.
fn extras(classes: &[Class], sizes: Sizes) -> usize {
    let slots = sizes.workers as usize * sizes.threads;
    let least = |class: &Class| class.count * class.volumes.0 as usize;
    slots.saturating_sub(classes.iter().map(least).sum())
}

/// The best splits of all domains, over all volumes that sum to WT; or, where that takes long, at
/// the price of a thread that makes them sum to WT; and the threads and mains that each class so
/// has.
pub(crate) fn splits(
    classes: &[Class],
    sizes: Sizes,
    prices: &Prices,
    wanted: &mut Prices,
) -> (i64, Vec<[i64; 2]>) {
    let count = Count::of(classes, sizes);
    let tables: Vec<Split> = (0..classes.len())
        .map(|at| {
            let tolls = (prices.permits, prices.tolls[at], prices.beside[at]);
            Split::of(&classes[at], (sizes, count), &prices.parts[at], tolls)
        })
        .collect();
    let none: i64 = classes
        .iter()
        .zip(&prices.parts)
        .map(|(class, parts)| -parts[0][0] * sizes.workers * class.count as i64)
        .sum();
    let exact = volume_work(classes, sizes) <= BISECTIONS as usize * volumes_of(classes);
    let (best, volumes) = if exact {
        summed(classes, &tables, sizes)
    } else {
        priced(classes, &tables, sizes)
    };
    let mut held = vec![[0; 2]; classes.len()];
    for (at, volume, times) in volumes {
        tables[at].count((volume, times), sizes, wanted, at);
        held[at][0] += volume as i64 * times;
        held[at][1] += tables[at].best[volume].mains as i64 * times;
    }
    (best.saturating_add(none), held)
}

/// The best sum of splits, and the class, the volume and how many domains have it.
type Volumes = (i64, Vec<(usize, usize, i64)>);

/// Over all volumes that sum to WT, from a table over domains and threads.
fn summed(classes: &[Class], tables: &[Split], sizes: Sizes) -> Volumes {
    let extras = extras(classes, sizes);
    let mut reached = 0;
    let mut best = vec![NEVER; extras + 1];
    best[0] = 0;
    let mut taken: Vec<(usize, Vec<u16>)> = Vec::new();
    for (at, (class, split)) in classes.iter().zip(tables).enumerate() {
        let (least, most) = (class.volumes.0 as usize, class.volumes.1 as usize);
        for _ in 0..class.count {
            let mut next = vec![NEVER; extras + 1];
            let mut choice = vec![0u16; extras + 1];
            for (before, &value) in best.iter().enumerate().take(reached + 1) {
                if value <= NEVER / 2 {
                    continue;
                }
                for more in 0..=(most - least).min(extras - before) {
                    let sum = value + split.best[least + more].worth;
                    if sum > next[before + more] {
                        next[before + more] = sum;
                        choice[before + more] = more as u16;
                    }
                }
            }
            reached = (reached + most - least).min(extras);
            best = next;
            taken.push((at, choice));
        }
    }
    let mut left = extras;
    let mut volumes = Vec::with_capacity(taken.len());
    for (at, choice) in taken.iter().rev() {
        let more = usize::from(choice[left]);
        left -= more;
        volumes.push((*at, classes[*at].volumes.0 as usize + more, 1));
    }
    (best[extras], volumes)
}

/// At a price of a thread: found by bisection, so that volumes sum to WT as nearly as they do at
/// any. A bound whatever the price is.
fn priced(classes: &[Class], tables: &[Split], sizes: Sizes) -> Volumes {
    let slots = sizes.workers * sizes.threads as i64;
    let at_price = |price: i64| -> (i64, i64, Vec<usize>) {
        let (mut sum, mut volume, mut chosen) = (price * slots, 0, Vec::new());
        for (class, split) in classes.iter().zip(tables) {
            let (least, most) = (class.volumes.0 as usize, class.volumes.1 as usize);
            let worth = |v: usize| split.best[v].worth.saturating_sub(price * v as i64);
            let best = (least..=most).max_by_key(|&v| worth(v)).unwrap_or(least);
            sum += worth(best).max(NEVER / 1_000) * class.count as i64;
            volume += (best * class.count) as i64;
            chosen.push(best);
        }
        (sum, volume, chosen)
    };
    let (mut low, mut high) = (-STEEPEST, STEEPEST);
    let (mut fewer, mut more) = (at_price(high), at_price(low));
    // bound: the range halves
    for _ in 0..BISECTIONS {
        let middle = low + (high - low) / 2;
        let now = at_price(middle);
        if now.1 > slots {
            (low, more) = (middle, now);
        } else {
            (high, fewer) = (middle, now);
        }
    }
    let mut left = slots - fewer.1;
    let mut volumes = Vec::with_capacity(2 * classes.len());
    for (at, class) in classes.iter().enumerate() {
        let apart = more.2[at] as i64 - fewer.2[at] as i64;
        let many = if apart > 0 {
            (left / apart).clamp(0, class.count as i64)
        } else {
            0
        };
        left -= many * apart;
        volumes.push((at, more.2[at], many));
        volumes.push((at, fewer.2[at], class.count as i64 - many));
    }
    (fewer.0.min(more.0), volumes)
}

/// What is best for a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Best {
    worth: i64,
    mains: usize,
    /// Which table it is from: cpus that have a main and are not full.
    table: usize,
    /// Permits of cores and of cpus.
    used: [i64; 2],
}

/// Splits of all volumes: worth and last part, for each number of mains, or for all.
type Table = Vec<(Vec<i64>, Vec<u16>)>;

/// The best split of every volume of a class, relative to parts of 0.
struct Split {
    tables: Vec<Table>,
    best: Vec<Best>,
    count: Count,
    /// Cpus of a domain, and how many threads one that is not full has beside its main.
    cpus: usize,
    each: i64,
    /// Whether there is no permit at all: of cores, of cpus.
    strict: [bool; 2],
    /// Whether cpus need permits.
    limited: bool,
}

impl Split {
    fn of(
        class: &Class,
        (sizes, count): (Sizes, Count),
        parts: &[Vec<i64>; 2],
        (permits, toll, fine): ([i64; 2], i64, i64),
    ) -> Self {
        let most = class.volumes.1 as usize;
        let mains_most = class.main_counts.1 as usize;
        let mut split = Self {
            tables: Vec::new(),
            best: Vec::with_capacity(most + 1),
            count,
            cpus: class.cpus as usize,
            each: sizes.beside.unwrap_or(0),
            strict: sizes.permits.map(|permits| permits == Some(0)),
            limited: sizes.permits[1].is_some(),
        };
        for at in 0..=if count.beside { mains_most } else { 0 } {
            let [peers, mains] = split.values(class, (sizes, at), parts, fine);
            split.tables.push(if count.exact {
                let mains_most = if split.strict[1] && count.beside {
                    at
                } else {
                    mains_most
                };
                layers(most, mains_most, &peers, &mains)
            } else {
                vec![one_layer(most, &peers, &mains, toll)]
            });
        }
        for volume in 0..=most {
            let best = if volume < class.volumes.0 as usize {
                None
            } else {
                (class.main_counts.0 as usize..=mains_most)
                    .filter_map(|m| split.best_of(class, (volume, m), permits, (toll, fine)))
                    .max()
            };
            split.best.push(best.unwrap_or(Best {
                worth: NEVER,
                mains: 0,
                table: 0,
                used: [0; 2],
            }));
        }
        split
    }

    /// What parts are worth, without and with a main, where so many cpus have a main and are not
    /// full.
    fn values(
        &self,
        class: &Class,
        (sizes, table): (Sizes, usize),
        parts: &[Vec<i64>; 2],
        fine: i64,
    ) -> [Vec<i64>; 2] {
        let coupled = sizes.permits[0].is_some();
        [0, 1].map(|main: usize| {
            let of = |k: usize| {
                let loss = if main > 0 && coupled {
                    class.loss[k]
                } else {
                    0
                };
                let crowd = self.crowd(table, k, main);
                if crowd > 0 && self.each == 0 {
                    return NEVER / 1_000;
                }
                (class.worth[k] - loss) * SCALE - parts[main][k] + parts[0][0] - fine * crowd
            };
            (0..class.worth.len()).map(of).collect()
        })
    }

    /// How many threads of a part must go beside mains of others on cpus that are not full.
    fn crowd(&self, table: usize, k: usize, main: usize) -> i64 {
        if self.count.beside && k > 0 {
            (k - main).saturating_sub(self.cpus - table.min(self.cpus)) as i64
        } else {
            0
        }
    }

    /// The best for a volume with so many mains, if there can be.
    fn best_of(
        &self,
        class: &Class,
        (volume, mains): (usize, usize),
        permits: [i64; 2],
        (toll, fine): (i64, i64),
    ) -> Option<Best> {
        let gift = class.loss.iter().copied().max().unwrap_or(0) * SCALE - permits[0];
        let (n, m) = (volume as i64, mains as i64);
        let cores = class.cores_needed(n, m);
        let full = if self.limited {
            class.cpus_needed(n, m)
        } else {
            0
        };
        if self.strict[0] && cores > 0 || self.strict[1] && full > 0 {
            return None;
        }
        let cores = if gift > 0 && !self.strict[0] {
            m.max(cores)
        } else {
            cores
        };
        let either = class.either_needed(n, m);
        if self.strict[0] && self.strict[1] && either > 0 {
            return None;
        }
        let tables = match self.count.beside {
            true if self.strict[1] => mains..mains + 1,
            true => 0..(m - full + 1).max(0) as usize,
            false => 0..1,
        };
        let of = |table: usize| {
            let worth = if self.count.exact {
                self.tables[table][mains].0[volume]
            } else {
                self.tables[table][0].0[volume] + toll * m
            };
            let cpus = if self.count.beside {
                m - table as i64
            } else {
                full
            };
            let crowd = fine * self.each * table as i64 * i64::from(self.count.beside);
            // what either rule asks for beyond what each asks for is of the cheaper kind
            let more = (either - cores - cpus).max(0);
            let of_cores = !self.strict[0] && (self.strict[1] || -gift < permits[1]);
            let used = if of_cores {
                [cores + more, cpus]
            } else {
                [cores, cpus + more]
            };
            let costs = class.mains[mains] * SCALE + used[1] * permits[1] - used[0] * gift;
            Best {
                worth: worth + crowd - costs,
                mains,
                table,
                used,
            }
        };
        tables.map(of).max()
    }

    /// Takes what the split of a volume offers in so many domains off what is wanted.
    fn count(
        &self,
        (mut volume, times): (usize, i64),
        sizes: Sizes,
        wanted: &mut Prices,
        at: usize,
    ) {
        let best = self.best[volume];
        let table = &self.tables[best.table];
        for (wanted, used) in wanted.permits.iter_mut().zip(best.used) {
            *wanted -= used * times;
        }
        let (mut m, mut parts, mut mains) = (best.mains, 0, 0);
        let mut beside = self.each * best.table as i64;
        while volume > 0 {
            let last = table[if self.count.exact { m } else { 0 }].1[volume];
            let main = usize::from(last & MAIN > 0);
            let k = usize::from(last & !MAIN).max(1);
            wanted.parts[at][main][k] -= times;
            beside -= self.crowd(best.table, k, main);
            volume -= k.min(volume);
            m -= main.min(m);
            mains += main as i64;
            parts += 1;
        }
        wanted.parts[at][0][0] -= (sizes.workers - parts) * times;
        if !self.count.exact {
            wanted.tolls[at] += (best.mains as i64 - mains) * times;
        }
        if self.count.beside && self.each > 0 {
            wanted.beside[at] += beside * times;
        }
    }
}

/// For every volume the best split into parts, main parts at a toll, and its last part.
fn one_layer(most: usize, peers: &[i64], mains: &[i64], toll: i64) -> (Vec<i64>, Vec<u16>) {
    let better = |k: usize| {
        let main = mains[k] - toll;
        if main > peers[k] {
            (main, k as u16 | MAIN)
        } else {
            (peers[k], k as u16)
        }
    };
    let parts: Vec<(i64, u16)> = (0..peers.len()).map(better).collect();
    let (mut worth, mut last) = (vec![NEVER; most + 1], vec![0u16; most + 1]);
    worth[0] = 0;
    for volume in 1..=most {
        for k in 1..parts.len().min(volume + 1) {
            let sum = worth[volume - k] + parts[k].0;
            if sum > worth[volume] {
                (worth[volume], last[volume]) = (sum, parts[k].1);
            }
        }
    }
    (worth, last)
}

/// For 0..=m mains and every volume the best split into parts, and its last part.
fn layers(most: usize, m: usize, peers: &[i64], mains: &[i64]) -> Table {
    let mut layers: Table = Vec::with_capacity(m + 1);
    for m in 0..=m {
        let (mut worth, mut last) = (vec![NEVER; most + 1], vec![0u16; most + 1]);
        if m == 0 {
            worth[0] = 0;
        }
        for volume in 1..=most {
            let (mut best, mut from) = (NEVER, 0);
            for k in 1..peers.len().min(volume + 1) {
                let sum = worth[volume - k] + peers[k];
                if sum > best {
                    (best, from) = (sum, k as u16);
                }
                if m > 0 {
                    let sum = layers[m - 1].0[volume - k] + mains[k];
                    if sum > best {
                        (best, from) = (sum, k as u16 | MAIN);
                    }
                }
            }
            (worth[volume], last[volume]) = (best, from);
        }
        layers.push((worth, last));
    }
    layers
}
