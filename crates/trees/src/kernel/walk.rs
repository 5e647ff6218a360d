//! One row down eight trees at once, without branches: while one tree waits for its node, the
//! others have theirs. For a row alone, where filling a block costs more than it saves.

use std::ops::Range;

use super::Task;
use crate::ranks::Step;
use crate::ranks::quantize::fill_keys;

/// Trees that are walked together. Eight chains of dependent loads keep two load units busy.
const ABREAST: usize = 8;

/// Adds the leaves that the rows reach to `margins`, rows x groups.
pub(crate) fn sum(task: Task<'_>, trees: Range<usize>, margins: &mut [f32], keys: &mut Vec<u32>) {
    let view = task.view;
    for (row, margins) in margins.chunks_exact_mut(view.groups).enumerate() {
        fill_keys(view, task.rows, row, keys);
        for first in trees.clone().step_by(ABREAST) {
            let count = ABREAST.min(trees.end - first);
            // The last tree stands in for those behind it.
            let tree_of = |lane: usize| first + lane.min(count - 1);
            let starts: [usize; ABREAST] =
                std::array::from_fn(|lane| view.node_starts[tree_of(lane)] as usize);
            let ends: [usize; ABREAST] =
                std::array::from_fn(|lane| view.node_starts[tree_of(lane) + 1] as usize);
            let depth = view.depths[first..first + count].iter().copied().max();
            let trees = std::array::from_fn(|lane| &view.ranks.steps[starts[lane]..ends[lane]]);
            let reached = descend(trees, keys, depth.unwrap_or(0));
            for lane in 0..count {
                let group = view.tree_groups[first + lane] as usize;
                margins[group] += view.ranks.step_values[starts[lane] + reached[lane]];
            }
        }
    }
}

/// The nodes that are reached after `depth` steps.
#[inline]
fn descend(trees: [&[Step]; ABREAST], keys: &[u32], depth: u32) -> [usize; ABREAST] {
    let mut at = [0; ABREAST];
    for _ in 0..depth {
        for (at, tree) in at.iter_mut().zip(trees) {
            let [key, place] = tree[*at];
            let is_right = keys[(place & 0xffff) as usize] >= key;
            *at = (place >> 16) as usize + usize::from(is_right);
        }
    }
    at
}
