//! Down the trees step by step, without branches, many walks at a time: while one waits for its
//! node, the others have theirs. For a few rows, where filling a block costs more than it saves.
//!
//! Eight rows go down one tree, whose nodes are near then; what is left of rows goes down eight
//! trees each.

use std::ops::{AddAssign, Range};

use super::{Scratch, Task};
use crate::ranks::Step;
use crate::ranks::keys::fill_keys;
use albacore_simd::Simd;

/// Walks at a time. Eight chains of dependent loads keep two load units busy; of sixteen, half the
/// places would not be in registers.
pub(crate) const ABREAST: usize = 8;
/// In deeper trees walks end at very different levels.
const DEEP: u32 = 8;
/// Places of keys are 16 bits: of so many keys, none needs a check.
const WINDOW: usize = 1 << 16;

/// Fills in the keys of all rows, and what a window needs behind them; returns how many a row has.
pub(crate) fn fill(task: Task<'_>, scratch: &mut Scratch) -> usize {
    let Task {
        view,
        library,
        rows,
        ..
    } = task;
    let Scratch { keys, singles, .. } = scratch;
    let (simd, count, stride) = (Simd::best(), task.count(), view.key_count());
    if keys.len() < count * stride + WINDOW {
        keys.resize(count * stride + WINDOW, 0);
    }
    for (row, keys) in keys.chunks_exact_mut(stride).take(count).enumerate() {
        fill_keys(view, library, rows, (row, simd), (keys, singles));
    }
    stride
}

/// Adds the leaves that the rows reach to `margins`, rows x groups; `value` is what a leaf's word
/// adds.
pub(crate) fn sum<T: AddAssign>(
    task: Task<'_>,
    trees: Range<usize>,
    margins: &mut [T],
    value: impl Fn(u32) -> T,
    scratch: &mut Scratch,
) {
    let view = task.view;
    let (groups, count) = (view.groups, task.count());
    let stride = fill(task, scratch);
    let keys = scratch.keys.as_slice();
    let steps = view.ranks.steps;
    let start_of = |tree: usize| view.node_starts[tree] as usize;
    let together = count / ABREAST * ABREAST;
    if together > 0 {
        for tree in trees.clone() {
            let nodes = &steps[start_of(tree)..start_of(tree + 1)];
            let group = view.tree_groups[tree] as usize;
            let mut add = |first: usize, reached: [u32; ABREAST]| {
                for (lane, word) in reached.into_iter().enumerate() {
                    margins[(first + lane) * groups + group] += value(word);
                }
            };
            let depth = view.depths[tree];
            if depth > DEEP {
                for first in (0..together).step_by(ABREAST) {
                    let from = std::array::from_fn(|lane| (first + lane) * stride);
                    add(first, descend_far(nodes, (keys, from), [0; ABREAST], depth));
                }
                continue;
            }
            for first in (0..together).step_by(ABREAST) {
                let from: [usize; ABREAST] = std::array::from_fn(|lane| (first + lane) * stride);
                let key = |lane: usize, place: usize| keys[from[lane] + place];
                add(first, descend(nodes, key, [0; ABREAST], depth));
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
        let mut add = |reached: [u32; ABREAST]| {
            for (word, &group) in reached.into_iter().zip(groups) {
                margins[group as usize] += value(word);
            }
        };
        if depth > DEEP {
            add(descend_far(steps, (keys, [0; ABREAST]), starts, depth));
        } else {
            add(descend(steps, key, starts, depth));
        }
    }
    for ((&start, &depth), &group) in few_starts.iter().zip(few_depths).zip(few_targets) {
        let [word] = descend(steps, key, [start as usize], depth);
        margins[group as usize] += value(word);
    }
}

/// What each tree adds to each row: trees x rows.
pub(crate) fn values<T>(
    task: Task<'_>,
    trees: Range<usize>,
    out: &mut [T],
    value: impl Fn(u32) -> T,
    scratch: &mut Scratch,
) {
    let (view, count) = (task.view, task.count());
    let stride = fill(task, scratch);
    for row in 0..count {
        let Some(keys) = scratch.keys[row * stride..].first_chunk::<WINDOW>() else {
            return;
        };
        let (steps, key) = (view.ranks.steps, |_, place: usize| keys[place]);
        let (starts, few_starts) = view.node_starts[trees.start..trees.end].as_chunks::<ABREAST>();
        let (depths, few_depths) = view.depths[trees.clone()].as_chunks::<ABREAST>();
        // Every `count`-th value from the row's first on.
        let mut out = out.iter_mut().skip(row).step_by(count);
        for (starts, depths) in starts.iter().zip(depths) {
            let depth = depths.iter().fold(0, |a, &b| a.max(b));
            let starts = starts.map(|start| start as usize);
            let reached = match depth > DEEP {
                true => descend_far(steps, (keys, [0; ABREAST]), starts, depth),
                false => descend(steps, key, starts, depth),
            };
            for (word, out) in reached.into_iter().zip(&mut out) {
                *out = value(word);
            }
        }
        for ((&start, &depth), out) in few_starts.iter().zip(few_depths).zip(&mut out) {
            let [word] = descend(steps, key, [start as usize], depth);
            *out = value(word);
        }
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

/// As [`descend`], until all walks have come to their leaves; each reads the keys from its place
/// on. A function of its own: what it takes from memory must not keep the other's from registers.
#[inline(never)]
fn descend_far(
    steps: &[Step],
    (keys, from): (&[u32], [usize; ABREAST]),
    mut at: [usize; ABREAST],
    depth: u32,
) -> [u32; ABREAST] {
    for _ in 0..depth {
        let mut moved = 0;
        for (walk, at) in at.iter_mut().enumerate() {
            let [last_left, place] = steps[*at];
            let is_right = keys[from[walk] + (place & 0xffff) as usize] > last_left;
            *at += (place >> 16) as usize + usize::from(is_right);
            moved |= place;
        }
        // Leaves ask the first key and lead nowhere.
        if moved == 0 {
            break;
        }
    }
    at.map(|at| steps[at][0])
}
