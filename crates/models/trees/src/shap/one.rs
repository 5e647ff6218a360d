//! One row through eight trees at once, a lane for each: see `lots` for what lies where.

use crate::shap::blocks::Scratch;
use crate::shap::lots::{ABREAST, LotsView, Repeat, Shape, kind, vectors};
use crate::shap::pairs::Pairs;
use albacore_simd::{Lanes, Work};

/// A lot, for one row; with `PAIRS`, pairs of its splits, too.
pub(super) struct Explain<'a, const PAIRS: bool> {
    pub(super) form: &'a LotsView<'a>,
    pub(super) lot: usize,
    /// The keys of the row.
    pub(super) keys: &'a [u32],
    pub(super) rule: &'a [(f64, f64)],
    /// What each place and lane contributes is left here.
    pub(super) scratch: &'a mut Scratch,
}

impl<const PAIRS: bool> Work for Explain<'_, PAIRS> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        match self.rule.len() {
            1 => self.with::<L, 1>(lanes),
            2 => self.with::<L, 2>(lanes),
            3 => self.with::<L, 3>(lanes),
            4 => self.with::<L, 4>(lanes),
            5 => self.with::<L, 5>(lanes),
            6 => self.with::<L, 6>(lanes),
            7 => self.with::<L, 7>(lanes),
            8 => self.with::<L, 8>(lanes),
            // `check` has refused all others.
            _ => {}
        }
    }
}

impl<const PAIRS: bool> Explain<'_, PAIRS> {
    #[inline(always)]
    fn with<L: Lanes, const N: usize>(self, lanes: L) {
        let Some(rule) = self.rule.first_chunk::<N>() else {
            return;
        };
        let Self {
            form, lot, keys, ..
        } = self;
        let (this, next) = (form.lots[lot], form.lots[lot + 1]);
        let range = |part: usize| this[part] as usize..next[part] as usize;
        let shapes = &form.shapes[range(1)];
        let asks = &form.asks[range(1).start * ABREAST..range(1).end * ABREAST];
        let Scratch {
            firsts,
            alive,
            parts,
            frames,
            places,
            pairs,
            ..
        } = self.scratch;
        follow(shapes, asks, &form.repeats[range(3)], keys, (firsts, alive));
        parts.resize(shapes.len() * ABREAST, 0.0);
        let depth = this[5] as usize;
        let length = (depth + 1) * vectors_of_level(PAIRS) * N * L::WIDTH;
        if frames.len() < length {
            frames.resize(length, 0.0);
        }
        if PAIRS {
            pairs.reserve(shapes.len(), depth);
        }
        for first in (0..ABREAST).step_by(L::WIDTH) {
            let descent = Descent::<L, N, PAIRS> {
                lanes,
                shapes,
                numbers: &form.numbers[range(2)],
                first,
                firsts,
                alive,
                rest: rule.map(|(t, _)| lanes.splat(1.0 - t)),
                at: rule.map(|(t, _)| lanes.splat(t)),
                frames,
                stack: &mut places.0,
                parts,
                pairs,
            };
            descent.run(rule.map(|(_, weight)| lanes.splat(weight)));
        }
    }
}

/// Of each place: in which lanes the row goes to the first child, and in which it has followed the
/// earlier edges of the feature.
#[inline(always)]
fn follow(
    shapes: &[Shape],
    asks: &[[u32; 2]],
    repeats: &[u32],
    keys: &[u32],
    (firsts, alive): (&mut Vec<u8>, &mut Vec<u8>),
) {
    firsts.clear();
    let (asks, _) = asks.as_chunks::<ABREAST>();
    firsts.extend(shapes.iter().zip(asks).map(|(shape, asks)| {
        let mut bits = 0;
        for (lane, &[key, place]) in asks.iter().enumerate() {
            bits |= u8::from(keys[place as usize] < key) << lane;
        }
        bits ^ shape[4]
    }));
    alive.clear();
    alive.resize(shapes.len(), u8::MAX);
    for repeat in repeats.iter().map(|&word| Repeat::of_word(word)) {
        let goes_first = firsts[repeat.above] >> repeat.lane & 1 == 1;
        let was_alive = alive[repeat.above] >> repeat.lane & 1 == 1;
        let is_dead = !was_alive || goes_first != repeat.is_first;
        alive[repeat.place] &= !(u8::from(is_dead) << repeat.lane);
    }
}

/// What a level keeps for each point: the product above, the sum of the first side, and what the
/// edge below changes g by.
const fn vectors_of_level(has_pairs: bool) -> usize {
    if has_pairs { 3 } else { 2 }
}

/// A place whose children are being gone through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    place: u32,
    /// Where its numbers begin.
    numbers: u32,
    /// Whether the first child is summed up.
    is_second: bool,
}

/// What a split makes of the products at each point: A and B of `blocks`, and C if it is not 1.
struct Factors<L: Lanes, const N: usize> {
    a: [L::Vector; N],
    b: [L::Vector; N],
    c: Option<[L::Vector; N]>,
    /// 1 / f, where C is not 1.
    inverses: [L::Vector; N],
    /// Lanes that contribute.
    alive: u64,
}

struct Descent<'a, L: Lanes, const N: usize, const PAIRS: bool> {
    lanes: L,
    shapes: &'a [Shape],
    numbers: &'a [f64],
    first: usize,
    firsts: &'a [u8],
    alive: &'a [u8],
    /// 1 - t and t.
    rest: [L::Vector; N],
    at: [L::Vector; N],
    frames: &'a mut [f64],
    stack: &'a mut [Open],
    parts: &'a mut [f64],
    pairs: &'a mut Pairs,
}

impl<L: Lanes, const N: usize, const PAIRS: bool> Descent<'_, L, N, PAIRS> {
    #[inline(always)]
    fn run(mut self, weights: [L::Vector; N]) {
        let lanes = self.lanes;
        let (mut above, mut depth, mut numbers) = (weights, 0, 0);
        let mut place = 0;
        // bound: every turn takes a place.
        while place < self.shapes.len() {
            let shape = self.shapes[place];
            let own = numbers;
            numbers += vectors(shape, N) * ABREAST;
            let factors = self.factors(place, shape, own);
            if shape[0] == kind::TWIN {
                let mut below = self.twin((place, depth), own, &factors, &above);
                place += 1;
                self.go_up(&mut below, &mut above, &mut depth);
                continue;
            }
            let share = self.number(own, 0);
            let goes = u64::from(self.firsts[place] >> self.first);
            for (k, above) in above.iter_mut().enumerate() {
                self.store(depth, k, *above);
                let ratio = lanes.mul(share, factors.a[k]);
                let ratio = lanes.add_where(goes & factors.alive, ratio, factors.b[k]);
                *above = lanes.mul(*above, ratio);
                if PAIRS {
                    let change = self.change(&factors, (share, goes), (ratio, k));
                    self.store(depth, 2 * N + k, change);
                }
            }
            if let Some(open) = self.stack.get_mut(depth) {
                *open = Open {
                    place: place as u32,
                    numbers: own as u32,
                    is_second: false,
                };
            }
            depth += 1;
            place += 1;
        }
    }

    /// The lanes' numbers of a vector of a place.
    #[inline(always)]
    fn number(&self, own: usize, vector: usize) -> L::Vector {
        let at = own + vector * ABREAST + self.first;
        self.lanes.load(&self.numbers[at..at + L::WIDTH])
    }

    #[inline(always)]
    fn load(&self, depth: usize, vector: usize) -> L::Vector {
        let at = (depth * vectors_of_level(PAIRS) * N + vector) * L::WIDTH;
        self.lanes.load(&self.frames[at..at + L::WIDTH])
    }

    #[inline(always)]
    fn store(&mut self, depth: usize, vector: usize, x: L::Vector) {
        let at = (depth * vectors_of_level(PAIRS) * N + vector) * L::WIDTH;
        self.lanes.store(x, &mut self.frames[at..at + L::WIDTH]);
    }

    #[inline(always)]
    fn factors(&self, place: usize, shape: Shape, own: usize) -> Factors<L, N> {
        let lanes = self.lanes;
        let one = lanes.splat(1.0);
        let mut factors = Factors {
            a: self.rest,
            b: self.at,
            c: None,
            inverses: [one; N],
            alive: u64::MAX,
        };
        if shape[3] == 0 {
            return factors;
        }
        factors.alive = u64::from(self.alive[place] >> self.first);
        let from = vectors(shape, N) - N - 1;
        let product = self.number(own, from);
        let mut c = [one; N];
        for (k, c) in c.iter_mut().enumerate() {
            let inverse = self.number(own, from + 1 + k);
            let scale = lanes.mul(product, inverse);
            let a = lanes.mul(scale, self.rest[k]);
            // A row that has left the path earlier: only the share counts.
            factors.a[k] = lanes.select(factors.alive, a, one);
            factors.b[k] = lanes.mul(inverse, self.at[k]);
            if PAIRS {
                factors.inverses[k] = inverse;
            }
            *c = lanes.mul(scale, inverse);
        }
        factors.c = Some(c);
        factors
    }

    /// What an edge changes g of its feature by, see `walk`; `ratio` is f' / f of the edge.
    #[inline(always)]
    fn change(
        &self,
        factors: &Factors<L, N>,
        (share, goes): (L::Vector, u64),
        (ratio, k): (L::Vector, usize),
    ) -> L::Vector {
        let lanes = self.lanes;
        let (one, zero) = (lanes.splat(1.0), lanes.splat(0.0));
        let mut followed = lanes.div(lanes.sub(one, share), ratio);
        let mut left = lanes.div(lanes.splat(-1.0), self.rest[k]);
        if let Some(c) = &factors.c {
            followed = lanes.mul(followed, c[k]);
            left = lanes.mul(left, factors.inverses[k]);
        }
        let change = lanes.select(goes, followed, left);
        lanes.select(factors.alive, change, zero)
    }

    /// Pairs of a split with those above it, from what its edges add at each point.
    #[inline(always)]
    fn pair_up(&mut self, (place, depth): (usize, usize), integrand: &[L::Vector; N]) {
        let lanes = self.lanes;
        for level in 0..depth {
            let mut sum = lanes.splat(0.0);
            for (k, &x) in integrand.iter().enumerate() {
                sum = lanes.mul_add(x, self.load(level, 2 * N + k), sum);
            }
            let above = self.stack[level].place;
            self.pairs.note((place, level, above), |cells| {
                lanes.store(sum, &mut cells[self.first..self.first + L::WIDTH]);
            });
        }
    }

    /// What the split contributes, from the sum that is followed and the sum that is expected below
    /// it; returns the sum that goes up.
    #[inline(always)]
    fn add_up(
        &mut self,
        (place, depth): (usize, usize),
        factors: &Factors<L, N>,
        [above, followed, expected]: [&[L::Vector; N]; 3],
    ) -> [L::Vector; N] {
        let lanes = self.lanes;
        let zero = lanes.splat(0.0);
        let (mut sum, mut below) = (zero, *expected);
        let mut integrand = [zero; N];
        for k in 0..N {
            let mut weight = above[k];
            if let Some(c) = &factors.c {
                weight = lanes.mul(weight, c[k]);
            }
            let pull = lanes.sub(followed[k], expected[k]);
            sum = lanes.mul_add(weight, pull, sum);
            if PAIRS {
                let x = lanes.mul(weight, pull);
                integrand[k] = lanes.select(factors.alive, x, zero);
            }
            let moved = lanes.mul(factors.b[k], followed[k]);
            below[k] = lanes.mul_add(expected[k], factors.a[k], moved);
            if factors.c.is_some() {
                below[k] = lanes.select(factors.alive, below[k], expected[k]);
            }
        }
        if factors.c.is_some() {
            sum = lanes.select(factors.alive, sum, zero);
        }
        if PAIRS {
            self.pair_up((place, depth), &integrand);
        }
        let at = place * ABREAST + self.first;
        lanes.store(sum, &mut self.parts[at..at + L::WIDTH]);
        below
    }

    /// A place without children.
    #[inline(always)]
    fn twin(
        &mut self,
        (place, depth): (usize, usize),
        own: usize,
        factors: &Factors<L, N>,
        above: &[L::Vector; N],
    ) -> [L::Vector; N] {
        let expected = self.number(own, 0);
        let goes = u64::from(self.firsts[place] >> self.first);
        let leaves = [self.number(own, 1), self.number(own, 2)];
        let followed = self.lanes.select(goes, leaves[0], leaves[1]);
        self.add_up(
            (place, depth),
            factors,
            [above, &[followed; N], &[expected; N]],
        )
    }

    /// Up from a child whose sum is known, until a second child is to be gone down to.
    #[inline(always)]
    fn go_up(&mut self, below: &mut [L::Vector; N], above: &mut [L::Vector; N], depth: &mut usize) {
        let lanes = self.lanes;
        // bound: a level less with each turn, or the last.
        while *depth > 0 {
            let level = *depth - 1;
            let Open {
                place,
                numbers,
                is_second,
            } = self.stack[level];
            let (place, own) = (place as usize, numbers as usize);
            let shape = self.shapes[place];
            let goes = u64::from(self.firsts[place] >> self.first);
            let factors = self.factors(place, shape, own);
            let has_firsts = usize::from(shape[1] != 0);
            if !is_second && has_firsts != 0 {
                let leaves = self.number(own, 2);
                let are_leaves = u64::from(shape[1] >> self.first);
                for below in below.iter_mut() {
                    *below = lanes.select(are_leaves, leaves, *below);
                }
            }
            if !is_second && shape[0] == kind::BOTH {
                let share = self.number(own, 1);
                for k in 0..N {
                    self.store(level, N + k, below[k]);
                    let ratio = lanes.mul(share, factors.a[k]);
                    let ratio = lanes.add_where(!goes & factors.alive, ratio, factors.b[k]);
                    if PAIRS {
                        let change = self.change(&factors, (share, !goes), (ratio, k));
                        self.store(level, 2 * N + k, change);
                    }
                    above[k] = lanes.mul(self.load(level, k), ratio);
                }
                self.stack[level].is_second = true;
                return;
            }
            let (mut first, mut second) = (*below, *below);
            if shape[2] != 0 {
                let leaves = self.number(own, 2 + has_firsts);
                let are_leaves = match is_second {
                    true => u64::from(shape[2] >> self.first),
                    false => u64::MAX,
                };
                for second in &mut second {
                    *second = lanes.select(are_leaves, leaves, *second);
                }
            }
            let shares = [self.number(own, 0), self.number(own, 1)];
            let (mut expected, mut followed) = (first, first);
            for k in 0..N {
                above[k] = self.load(level, k);
                if is_second {
                    first[k] = self.load(level, N + k);
                }
                let parts = [
                    lanes.mul(shares[0], first[k]),
                    lanes.mul(shares[1], second[k]),
                ];
                expected[k] = lanes.add(parts[0], parts[1]);
                followed[k] = lanes.select(goes, first[k], second[k]);
            }
            *below = self.add_up((place, level), &factors, [above, &followed, &expected]);
            *depth -= 1;
        }
    }
}
