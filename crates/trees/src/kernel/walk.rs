//! Down the trees step by step, without branches, eight walks at a time: while one waits for its
//! node, the others have theirs. For a few rows, where filling a block costs more than it saves.
//!
//! Eight rows go down one tree, whose nodes are near then; what is left of rows goes down eight
//! trees each.

use std::ops::{AddAssign, Range};

use super::{Scratch, Task};
use crate::ranks::Step;
use crate::ranks::keys::fill_keys;
use crate::simd::Simd;

/// Walks at a time. Eight chains of dependent loads keep two load units busy.
const ABREAST: usize = 8;
/// Places of keys are 16 bits: of so many keys, none needs a check.
const WINDOW: usize = 1 << 16;

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
    let stride = view.key_count();
    // Whole windows of the last row, too.
    if keys.len() < count * stride + WINDOW {
        keys.resize(count * stride + WINDOW, 0);
    }
    for (row, keys) in keys.chunks_exact_mut(stride).take(count).enumerate() {
        fill_keys(view, library, rows, (row, simd), (keys, singles));
    }
    let steps = view.ranks.steps;
    let start_of = |tree: usize| view.node_starts[tree] as usize;
    let together = count / ABREAST * ABREAST;
    if together > 0 {
        for tree in trees.clone() {
            let nodes = &steps[start_of(tree)..start_of(tree + 1)];
            let group = view.tree_groups[tree] as usize;
            for first in (0..together).step_by(ABREAST) {
                let from: [usize; ABREAST] = std::array::from_fn(|lane| (first + lane) * stride);
                let key = |lane: usize, place: usize| keys[from[lane] + place];
                let reached = descend(nodes, key, [0; ABREAST], view.depths[tree]);
                for (lane, word) in reached.into_iter().enumerate() {
                    margins[(first + lane) * groups + group] += value(word);
                }
            }
        }
    }
    for row in together..count {
        let Some(keys) = keys[row * stride..].first_chunk::<WINDOW>() else {
            return;
        };
        let margins = &mut margins[row * groups..][..groups];
        sum_row(task, trees.clone(), keys, (margins, &value));
    }
}

/// Adds the leaves that one row reaches to its margins.
fn sum_row<T: AddAssign>(
    task: Task<'_>,
    trees: Range<usize>,
    keys: &[u32; WINDOW],
    (margins, value): (&mut [T], impl Fn(u32) -> T),
) {
    let view = task.view;
    let (steps, key) = (view.ranks.steps, |_, place: usize| keys[place]);
    let (starts, few_starts) = view.node_starts[trees.start..trees.end].as_chunks::<ABREAST>();
    let (depths, few_depths) = view.depths[trees.clone()].as_chunks::<ABREAST>();
    let (targets, few_targets) = view.tree_groups[trees].as_chunks::<ABREAST>();
    for ((starts, depths), groups) in starts.iter().zip(depths).zip(targets) {
        let starts = starts.map(|start| start as usize);
        let depth = depths.iter().fold(0, |a, &b| a.max(b));
        let reached = descend(steps, key, starts, depth);
        for (word, &group) in reached.into_iter().zip(groups) {
            margins[group as usize] += value(word);
        }
    }
    for ((&start, &depth), &group) in few_starts.iter().zip(few_depths).zip(few_targets) {
        let [word] = descend(steps, key, [start as usize], depth);
        margins[group as usize] += value(word);
    }
}

/// The words of the leaves that are reached after `depth` steps from nodes `at`; `key` is that of
/// a walk's row at a place.
#[inline(always)]
fn descend<const N: usize>(
    steps: &[Step],
    key: impl Fn(usize, usize) -> u32,
    mut at: [usize; N],
    depth: u32,
) -> [u32; N] {
    for _ in 0..depth {
        for (walk, at) in at.iter_mut().enumerate() {
            let [last_left, place] = steps[*at];
            let is_right = key(walk, (place & 0xffff) as usize) > last_left;
            *at += (place >> 16) as usize + usize::from(is_right);
        }
    }
    at.map(|at| steps[at][0])
}
