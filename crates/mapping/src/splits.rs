//! The domains' side of the bargain (`prices`): every domain splits its volume into parts.
//!
//! **Problem.** At given prices, the most that all domains can make of volumes that sum to WT.
//! **Approach.** For each class a table of volumes: the best parts that sum to it, and the best number
//! of mains for it. Then volumes, in one of two ways: from a table over domains and threads, or each
//! domain for itself at a price of a thread. **Mains** are counted exactly, with a table for each
//! number of them; or, where that takes long, at a toll: a main part pays it and the domain is paid
//! it for each main that it counts, so that for a true split the two cancel. **Proof sketch.** Both
//! the price of a thread and the toll are multipliers of equations that hold in every mapping
//! (volumes sum to WT; main parts are mains), so dropping the equations can only raise the best.
//! **Limits.** A price of a thread is found by halving a range; volumes then differ from WT by less
//! than one domain's choice, which the bound pays for.

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
    volumes + split_work(classes, sizes, Count::of(classes, sizes))
}

/// How a domain's mains are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    /// With its parts, one table for every number of mains.
    Exact,
    /// At a toll: main parts pay it, and as many mains as are best for the domain get it. Where there
    /// are too many tables.
    Charged,
}

impl Count {
    fn of(classes: &[Class], sizes: Sizes) -> Self {
        if domains(classes) > 1 && split_work(classes, sizes, Self::Exact) <= PRICE_WORK_MAX / 100 {
            Self::Exact
        } else {
            Self::Charged
        }
    }
}

/// Looks at parts when all classes are split once.
fn split_work(classes: &[Class], sizes: Sizes, count: Count) -> usize {
    let of = |class: &Class| {
        let rounds = match (count, sizes.alone) {
            (Count::Charged, _) => 2,
            (Count::Exact, false) => 2 * class.mains.len(),
            (Count::Exact, true) => class.mains.len() * class.mains.len(),
        };
        class.room.most as usize * class.worth.len() * rounds
    };
    classes.iter().map(of).sum()
}

/// Volumes of all classes.
fn volumes_of(classes: &[Class]) -> usize {
    let of = |class: &Class| (class.room.most - class.room.least + 1) as usize;
    classes.iter().map(of).sum()
}

/// Looks at volumes when they are summed exactly.
fn volume_work(classes: &[Class], sizes: Sizes) -> usize {
    let of = |class: &Class| class.count * (class.room.most - class.room.least + 1) as usize;
    (extras(classes, sizes) + 1) * classes.iter().map(of).sum::<usize>()
}

/// Threads beyond the least that all domains hold.
fn extras(classes: &[Class], sizes: Sizes) -> usize {
    let slots = sizes.workers as usize * sizes.threads;
    let least = |class: &Class| class.count * class.room.least as usize;
    slots.saturating_sub(classes.iter().map(least).sum())
}

/// The best splits of all domains, over all volumes that sum to WT; or, where that takes long, at
/// the price of a thread that makes them sum to WT.
pub(crate) fn splits(classes: &[Class], sizes: Sizes, prices: &Prices, wanted: &mut Prices) -> i64 {
    let count = Count::of(classes, sizes);
    let tables: Vec<Split> = (0..classes.len())
        .map(|at| {
            let tolls = (prices.permit, prices.tolls[at]);
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
    for (at, volume, times) in volumes {
        tables[at].count((volume, times), sizes, wanted, at);
    }
    best.saturating_add(none)
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
        let (least, most) = (class.room.least as usize, class.room.most as usize);
        for _ in 0..class.count {
            let mut next = vec![NEVER; extras + 1];
            let mut choice = vec![0u16; extras + 1];
            for (before, &value) in best.iter().enumerate().take(reached + 1) {
                if value <= NEVER / 2 {
                    continue;
                }
                for more in 0..=(most - least).min(extras - before) {
                    let sum = value + split.best[least + more].0;
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
        volumes.push((*at, classes[*at].room.least as usize + more, 1));
    }
    (best[extras], volumes)
}

/// At a price of a thread: found by bisection, so that volumes sum to WT as nearly as they do at any.
/// A bound whatever the price is.
fn priced(classes: &[Class], tables: &[Split], sizes: Sizes) -> Volumes {
    let slots = sizes.workers * sizes.threads as i64;
    let at_price = |price: i64| -> (i64, i64, Vec<usize>) {
        let (mut sum, mut volume, mut chosen) = (price * slots, 0, Vec::new());
        for (class, split) in classes.iter().zip(tables) {
            let (least, most) = (class.room.least as usize, class.room.most as usize);
            let worth = |v: usize| split.best[v].0.saturating_sub(price * v as i64);
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

/// The best split of every volume of a class, relative to parts of 0.
struct Split {
    /// `worth[m][volume]`, with m mains.
    worth: Vec<Vec<i64>>,
    /// The last part of that: `[m][fewer mains][volume]`, or for all m in one.
    last: Vec<Vec<Vec<u16>>>,
    /// For each volume the best worth after all costs, its mains and its permits.
    best: Vec<(i64, u16, u16)>,
    count: Count,
}

impl Split {
    fn of(
        class: &Class,
        (sizes, count): (Sizes, Count),
        parts: &[Vec<i64>; 2],
        (permit, toll): (i64, i64),
    ) -> Self {
        let most = class.room.most as usize;
        let coupled = sizes.permits.is_some();
        let value = |main: usize| -> Vec<i64> {
            let of = |k: usize| {
                let loss = if main > 0 && coupled {
                    class.loss[k]
                } else {
                    0
                };
                (class.worth[k] - loss) * SCALE - parts[main][k] + parts[0][0]
            };
            (0..class.worth.len()).map(of).collect()
        };
        let (peers, mains) = (value(0), value(1));
        let mains_most = class.mains.len() - 1;
        let mut split = Self {
            worth: Vec::with_capacity(mains_most + 1),
            last: Vec::with_capacity(mains_most + 1),
            best: Vec::with_capacity(most + 1),
            count,
        };
        if count == Count::Exact && sizes.alone {
            for m in 0..=mains_most {
                let most_part = (class.cpus as usize).saturating_sub(m);
                let layers = layers(most, m, &peers, &mains, [most_part, most_part + 1]);
                let (worth, last): (Vec<_>, Vec<_>) = layers.into_iter().unzip();
                split.worth.extend(worth.into_iter().last());
                split.last.push(last);
            }
        } else if count == Count::Exact {
            let layers = layers(most, mains_most, &peers, &mains, [usize::MAX; 2]);
            let (worth, last): (Vec<_>, Vec<_>) = layers.into_iter().unzip();
            split.worth = worth;
            split.last.push(last);
        } else {
            let (worth, last) = one_layer(most, &peers, &mains, toll);
            let (worth, last) = (vec![worth], vec![last]);
            split.worth = worth;
            split.last.push(last);
        }
        let gift = class.loss.iter().copied().max().unwrap_or(0) * SCALE - permit;
        for volume in 0..=most {
            let after = |m: usize| {
                let mut sum = match count {
                    Count::Exact => split.worth[m][volume],
                    Count::Charged => split.worth[0][volume] + toll * m as i64,
                };
                sum -= class.mains[m] * SCALE;
                let mut used = 0;
                if coupled {
                    let must = class.needed(volume as i64, m as i64) as usize;
                    used = if gift > 0 { m.max(must) } else { must };
                    if must > m {
                        return (NEVER, 0, 0);
                    }
                    sum += used as i64 * gift;
                }
                (sum, m as u16, used as u16)
            };
            let best = (0..=mains_most).map(after).max();
            split.best.push(best.unwrap_or((NEVER, 0, 0)));
        }
        split
    }

    /// Takes what the split of a volume offers in so many domains off what is wanted.
    fn count(
        &self,
        (mut volume, times): (usize, i64),
        sizes: Sizes,
        wanted: &mut Prices,
        at: usize,
    ) {
        let (_, m, used) = self.best[volume];
        wanted.permit -= i64::from(used) * times;
        let offered = usize::from(m);
        let lasts = self.last.get(offered).unwrap_or(&self.last[0]);
        let lasts = if self.last.len() > 1 {
            lasts
        } else {
            &self.last[0]
        };
        let (mut m, mut parts, mut mains) = (offered, 0, 0);
        while volume > 0 {
            let layer = if self.count == Count::Exact { m } else { 0 };
            let last = lasts[layer][volume];
            let main = usize::from(last & MAIN > 0);
            let k = usize::from(last & !MAIN).max(1);
            wanted.parts[at][main][k] -= times;
            volume -= k.min(volume);
            m -= main.min(m);
            mains += main as i64;
            parts += 1;
        }
        wanted.parts[at][0][0] -= (sizes.workers - parts) * times;
        if self.count == Count::Charged {
            wanted.tolls[at] += (offered as i64 - mains) * times;
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

/// For 0..=m mains and every volume the best split into parts no larger than `most_part` (peers,
/// with main), and its last part.
fn layers(
    most: usize,
    m: usize,
    peers: &[i64],
    mains: &[i64],
    most_part: [usize; 2],
) -> Vec<(Vec<i64>, Vec<u16>)> {
    let mut layers: Vec<(Vec<i64>, Vec<u16>)> = Vec::with_capacity(m + 1);
    for m in 0..=m {
        let (mut worth, mut last) = (vec![NEVER; most + 1], vec![0u16; most + 1]);
        if m == 0 {
            worth[0] = 0;
        }
        for volume in 1..=most {
            let (mut best, mut from) = (NEVER, 0);
            for k in 1..peers.len().min(volume + 1) {
                let sum = worth[volume - k] + peers[k];
                if sum > best && k <= most_part[0] {
                    (best, from) = (sum, k as u16);
                }
                if m > 0 && k <= most_part[1] {
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
