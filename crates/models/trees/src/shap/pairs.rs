//! Interactions of one row over the lots: what `one` notes of pairs, added up.
//!
//! **Problem.** As in `walk`: each split has a pair with each edge above it. Eight trees are gone
//! through at once, but each adds to other cells.
//!
//! **Approach.** A descent notes, of each place and each level above it, what the pair adds in each
//! lane; all lanes are then added to the cells of their features, in the order of the places. A
//! pair goes to one cell, that of the lower split's feature and the upper one's, and both orders
//! are put together at the end. What a lane has no split for goes to a cell of its own, and what
//! belongs to the diagonal, which is what contributions leave of it, needs no question.
//!
//! **Proof sketch.** With A, B and C of `blocks`, the change z (o - s) / (f f') of an edge that is
//! followed is C (1 - s) over its ratio, and that of another -1 / (f (1 - t)): z and s cancel.
//!
//! **Limits.** As for `lots`; notes of at most [`NOTES_MAX`] numbers and matrices of at most
//! [`CELLS_MAX`] for all groups.

use crate::shap::blocks::Scratch;
use crate::shap::lots::ABREAST;
use crate::shap::one;
use crate::shap::quadrature::Rules;
use crate::view::EnsembleView;
use albacore_simd::Simd;

/// Numbers that pairs of a lot may take: 16 MiB.
const NOTES_MAX: usize = 1 << 21;

/// Cells of the matrices: 8 MiB.
const CELLS_MAX: usize = 1 << 20;

/// What pairs of a lot add.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// Levels that a place may have above it.
    depth: usize,
    /// Of each place: how many levels are above it.
    levels: Vec<u32>,
    /// Of each place and level: the place above, and what the pair adds in each lane.
    above: Vec<u32>,
    cells: Vec<[f64; ABREAST]>,
    /// Of each place and lane: its asked feature.
    asked: Vec<[u32; ABREAST]>,
    /// Groups x asked features.
    contribs: Vec<f64>,
    /// Groups x (asked features + 1) x (asked features + 1).
    sums: Vec<f64>,
}

impl Pairs {
    /// Makes room for a lot.
    pub(super) fn reserve(&mut self, places: usize, depth: usize) {
        self.depth = depth;
        self.levels.clear();
        self.levels.resize(places, 0);
        if self.above.len() < places * depth {
            self.above.resize(places * depth, 0);
            self.cells.resize(places * depth, [0.0; ABREAST]);
        }
    }

    /// Notes what the pair of a place and the one above it at a level adds.
    #[inline(always)]
    pub(super) fn note(
        &mut self,
        (place, level, above): (usize, usize, u32),
        write: impl FnOnce(&mut [f64; ABREAST]),
    ) {
        let at = place * self.depth + level;
        self.levels[place] = level as u32 + 1;
        self.above[at] = above;
        write(&mut self.cells[at]);
    }

    /// Adds a lot to the sums; `parts` are its contributions.
    fn add(&mut self, view: &EnsembleView<'_>, lot: usize, parts: &[f64]) {
        let count = view.ranks.asked.len();
        let columns = count + 1;
        self.asked.clear();
        self.asked
            .resize(self.levels.len(), [count as u32; ABREAST]);
        let mut groups = [0; ABREAST];
        let lanes = self.asked.as_flattened_mut();
        for (group, adds) in view.adds_of(lot) {
            let contribs = &mut self.contribs[group * count..][..count];
            for add in adds {
                let (lane, asked) = ((add >> 16) as usize, (add & 0xffff) as usize);
                lanes[lane] = asked as u32;
                groups[lane % ABREAST] = group * columns * columns;
                contribs[asked] += parts[lane];
            }
        }
        for (place, (&levels, own)) in self.levels.iter().zip(&self.asked).enumerate() {
            let own: [usize; ABREAST] =
                std::array::from_fn(|lane| groups[lane] + own[lane] as usize * columns);
            let notes = place * self.depth..place * self.depth + levels as usize;
            for (&above, cells) in self.above[notes.clone()].iter().zip(&self.cells[notes]) {
                let above = &self.asked[above as usize];
                for lane in 0..ABREAST {
                    self.sums[own[lane] + above[lane] as usize] += cells[lane];
                }
            }
        }
    }
}

/// Whether the interactions of a row can be had like this.
pub(crate) fn can_pair(view: &EnsembleView<'_>) -> bool {
    let columns = view.ranks.asked.len() + 1;
    let lots = view.lots.lots.windows(2);
    let mut notes = lots.map(|pair| (pair[1][1] - pair[0][1]) as usize * pair[0][5] as usize);
    let cells = columns.saturating_mul(columns).saturating_mul(view.groups);
    cells <= CELLS_MAX && notes.all(|notes| notes <= NOTES_MAX / ABREAST)
}

/// Interactions of one row: groups x (asked features + 1) x (asked features + 1), of which the last
/// row and column mean nothing.
pub(crate) fn interactions_of_row<'a>(
    view: &EnsembleView<'_>,
    keys: &[u32],
    simd: Simd,
    (rules, scratch): (&mut Rules, &'a mut Scratch),
) -> &'a [f64] {
    let form = &view.lots;
    let columns = view.ranks.asked.len() + 1;
    let Pairs { sums, contribs, .. } = &mut scratch.pairs;
    sums.clear();
    sums.resize(view.groups * columns * columns, 0.0);
    contribs.clear();
    contribs.resize(view.groups * (columns - 1), 0.0);
    for lot in 0..form.trees.len() {
        simd.run(one::Explain::<true> {
            form,
            lot,
            keys,
            rule: rules.exactly(form.lots[lot][0] as usize),
            scratch,
        });
        scratch.pairs.add(view, lot, &scratch.parts);
    }
    let Pairs { sums, contribs, .. } = &mut scratch.pairs;
    for (group, sums) in sums.chunks_exact_mut(columns * columns).enumerate() {
        let contribs = &contribs[group * (columns - 1)..][..columns - 1];
        for (asked, &contribution) in contribs.iter().enumerate() {
            sums[asked * columns + asked] = contribution;
        }
        super::mirror(sums, columns);
    }
    &scratch.pairs.sums
}
