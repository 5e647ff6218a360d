//! Down the trees step by step, without branches, eight walks at a time: while one waits for its
//! node, the others have theirs. For a few rows, where filling a block costs more than it saves.
//!
//! Eight rows go down one tree, whose nodes are near then; what is left of rows goes down eight
//! trees each.

use std::ops::{AddAssign, Range};

use super::{Scratch, Task};
use crate::ranks::Step;
use crate::ranks::keys::push_keys;
use crate::simd::Simd;

/// Walks at a time. Eight chains of dependent loads keep two load units busy.
const ABREAST: usize = 8;

/// Adds the leaves that the rows reach to `margins`, rows x groups; `value` is what a leaf's word
/// adds.
pub(crate) fn sum<T: AddAssign>(
    task: Task<'_>,
    trees: Range<usize>,
    margins: &mut [T],
    value: impl Fn(u32) -> T,
    scratch: &mut Scratch,
) {
    let Task {
        view,
        library,
        rows,
        ..
    } = task;
    let (groups, count) = (view.groups, task.count());
    let Scratch { keys, singles, .. } = scratch;
    let simd = Simd::best();
    keys.clear();
    for row in 0..count {
        push_keys(view, library, rows, (row, simd), (keys, singles));
    }
    let stride = keys.len() / count.max(1);
    let steps = view.ranks.steps;
    let start_of = |tree: usize| view.node_starts[tree] as usize;
    let together = count / ABREAST * ABREAST;
    if together > 0 {
        for tree in trees.clone() {
            let nodes = &steps[start_of(tree)..start_of(tree + 1)];
            let group = view.tree_groups[tree] as usize;
            for first in (0..together).step_by(ABREAST) {
                let from = std::array::from_fn(|lane| (first + lane) * stride);
                let reached = descend(nodes, keys, ([0; ABREAST], from), view.depths[tree]);
                for (lane, word) in reached.into_iter().enumerate() {
                    margins[(first + lane) * groups + group] += value(word);
                }
            }
        }
    }
    for row in together..count {
        let keys = &keys[row * stride..][..stride];
        let margins = &mut margins[row * groups..][..groups];
        for first in trees.clone().step_by(ABREAST) {
            let count = ABREAST.min(trees.end - first);
            // The last tree stands in for those behind it.
            let starts = std::array::from_fn(|lane| start_of(first + lane.min(count - 1)));
            let depth = view.depths[first..first + count].iter().max();
            let depth = depth.copied().unwrap_or(0);
            let reached = descend(steps, keys, (starts, [0; ABREAST]), depth);
            for (lane, &word) in reached[..count].iter().enumerate() {
                margins[view.tree_groups[first + lane] as usize] += value(word);
            }
        }
    }
}

/// The words of the leaves that are reached after `depth` steps: of each walk, the node to start
/// from and where its row's keys begin.
#[inline(always)]
fn descend(
    steps: &[Step],
    keys: &[u32],
    (mut at, from): ([usize; ABREAST], [usize; ABREAST]),
    depth: u32,
) -> [u32; ABREAST] {
    for _ in 0..depth {
        for (at, from) in at.iter_mut().zip(from) {
            let [last_left, place] = steps[*at];
            let is_right = keys[from + (place & 0xffff) as usize] > last_left;
            *at += (place >> 16) as usize + usize::from(is_right);
        }
    }
    at.map(|at| steps[at][0])
}
