//! Walks down the trees without branches, eight walks at a time: while one waits for the load of
//! its node, the others proceed. For few rows, where filling a block costs more than it saves.
//!
//! Eight rows walk the same tree, whose nodes then stay in the cache; each remaining row walks
//! eight trees.

use std::ops::{AddAssign, Range};

use super::{KernelCall, KernelScratch};
use crate::encode::keys::fill_keys;
use crate::layout::binned::{WalkNode, WalkNodeWords};
use albacore_simd::Simd;

/// Concurrent walks. Eight chains of dependent loads keep two load units busy; the positions of
/// sixteen walks do not fit in the registers.
pub(crate) const LANES: usize = 8;
/// In deeper trees walks end at very different levels.
const DEEP: u32 = 8;
/// Key indices have 16 bits: in a window of this many keys no index needs a bounds check.
const WINDOW: usize = 1 << 16;

/// Computes the keys of all rows, followed by the padding of a window; returns the number of keys
/// of a row.
pub(crate) fn fill(call: KernelCall<'_>, scratch: &mut KernelScratch) -> usize {
    let KernelCall {
        view,
        library,
        rows,
        ..
    } = call;
    let KernelScratch { keys, f32s, .. } = scratch;
    let (simd, count, stride) = (Simd::best(), call.count(), view.key_count());
    if keys.len() < count * stride + WINDOW {
        keys.resize(count * stride + WINDOW, 0);
    }
    for (row, keys) in keys.chunks_exact_mut(stride).take(count).enumerate() {
        let row = rows.rows(row..row + 1, view.features);
        fill_keys(view, library, row, simd, keys, f32s);
    }
    stride
}

/// Adds the leaf values of the rows to `margins`, rows x groups; `value` decodes
/// [`WalkNode::last_left`] of a leaf.
pub(crate) fn sum<T: AddAssign>(
    call: KernelCall<'_>,
    trees: Range<usize>,
    margins: &mut [T],
    value: impl Fn(u32) -> T,
    scratch: &mut KernelScratch,
) {
    let view = call.view;
    let (groups, count) = (view.groups, call.count());
    let stride = fill(call, scratch);
    let keys = scratch.keys.as_slice();
    let all_nodes = view.binned.walk_nodes;
    let start_of = |tree: usize| view.node_starts[tree] as usize;
    let in_lanes = count / LANES * LANES;
    if in_lanes > 0 {
        for tree in trees.clone() {
            let nodes = &all_nodes[start_of(tree)..start_of(tree + 1)];
            let group = view.tree_groups[tree] as usize;
            let mut add = |first: usize, reached: [u32; LANES]| {
                for (lane, word) in reached.into_iter().enumerate() {
                    margins[(first + lane) * groups + group] += value(word);
                }
            };
            let depth = view.depths[tree];
            if depth > DEEP {
                for first in (0..in_lanes).step_by(LANES) {
                    let from = std::array::from_fn(|lane| (first + lane) * stride);
                    add(first, descend_far(nodes, keys, from, [0; LANES], depth));
                }
                continue;
            }
            for first in (0..in_lanes).step_by(LANES) {
                let from: [usize; LANES] = std::array::from_fn(|lane| (first + lane) * stride);
                let key = |lane: usize, index: usize| keys[from[lane] + index];
                add(first, descend(nodes, key, [0; LANES], depth));
            }
        }
    }
    for row in in_lanes..count {
        let Some(keys) = keys[row * stride..].first_chunk::<WINDOW>() else {
            return;
        };
        let margins = &mut margins[row * groups..][..groups];
        sum_row(call, trees.clone(), keys, margins, &value);
    }
}

/// Adds the leaf values of one row to its margins.
fn sum_row<T: AddAssign>(
    call: KernelCall<'_>,
    trees: Range<usize>,
    keys: &[u32; WINDOW],
    margins: &mut [T],
    value: impl Fn(u32) -> T,
) {
    let view = call.view;
    let (all_nodes, key) = (view.binned.walk_nodes, |_, index: usize| keys[index]);
    let (starts, few_starts) = view.node_starts[trees.start..trees.end].as_chunks::<LANES>();
    let (depths, few_depths) = view.depths[trees.clone()].as_chunks::<LANES>();
    let (targets, few_targets) = view.tree_groups[trees].as_chunks::<LANES>();
    for ((starts, depths), groups) in starts.iter().zip(depths).zip(targets) {
        let starts = starts.map(|start| start as usize);
        let depth = depths.iter().fold(0, |a, &b| a.max(b));
        let mut add = |reached: [u32; LANES]| {
            for (word, &group) in reached.into_iter().zip(groups) {
                margins[group as usize] += value(word);
            }
        };
        if depth > DEEP {
            add(descend_far(all_nodes, keys, [0; LANES], starts, depth));
        } else {
            add(descend(all_nodes, key, starts, depth));
        }
    }
    for ((&start, &depth), &group) in few_starts.iter().zip(few_depths).zip(few_targets) {
        let [word] = descend(all_nodes, key, [start as usize], depth);
        margins[group as usize] += value(word);
    }
}

/// Computes the leaf value of each tree for each row: trees x rows.
pub(crate) fn values<T>(
    call: KernelCall<'_>,
    trees: Range<usize>,
    out: &mut [T],
    value: impl Fn(u32) -> T,
    scratch: &mut KernelScratch,
) {
    let (view, count) = (call.view, call.count());
    let stride = fill(call, scratch);
    for row in 0..count {
        let Some(keys) = scratch.keys[row * stride..].first_chunk::<WINDOW>() else {
            return;
        };
        let (all_nodes, key) = (view.binned.walk_nodes, |_, index: usize| keys[index]);
        let (starts, few_starts) = view.node_starts[trees.start..trees.end].as_chunks::<LANES>();
        let (depths, few_depths) = view.depths[trees.clone()].as_chunks::<LANES>();
        // Every `count`-th value, starting at the first of the row.
        let mut out = out.iter_mut().skip(row).step_by(count);
        for (starts, depths) in starts.iter().zip(depths) {
            let depth = depths.iter().fold(0, |a, &b| a.max(b));
            let starts = starts.map(|start| start as usize);
            let reached = match depth > DEEP {
                true => descend_far(all_nodes, keys, [0; LANES], starts, depth),
                false => descend(all_nodes, key, starts, depth),
            };
            for (word, out) in reached.into_iter().zip(&mut out) {
                *out = value(word);
            }
        }
        for ((&start, &depth), out) in few_starts.iter().zip(few_depths).zip(&mut out) {
            let [word] = descend(all_nodes, key, [start as usize], depth);
            *out = value(word);
        }
    }
}

/// Returns [`WalkNode::last_left`] of the leaves reached after `depth` steps from the nodes `at`;
/// `key` returns a key of the row of a walk.
#[inline(always)]
fn descend<const N: usize>(
    nodes: &[WalkNodeWords],
    key: impl Fn(usize, usize) -> u32,
    mut at: [usize; N],
    depth: u32,
) -> [u32; N] {
    for _ in 0..depth {
        for (walk, at) in at.iter_mut().enumerate() {
            let node = WalkNode::from_words(nodes[*at]);
            let is_right = key(walk, node.key) > node.last_left;
            *at += node.left_offset + usize::from(is_right);
        }
    }
    at.map(|at| WalkNode::from_words(nodes[at]).last_left)
}

/// Like [`descend`], but stops when all walks have reached their leaves; the keys of each walk
/// start at `from`. A separate function, so that its memory accesses do not cause register spills
/// in [`descend`].
#[inline(never)]
fn descend_far(
    nodes: &[WalkNodeWords],
    keys: &[u32],
    from: [usize; LANES],
    mut at: [usize; LANES],
    depth: u32,
) -> [u32; LANES] {
    for _ in 0..depth {
        let mut moved = 0;
        for (walk, at) in at.iter_mut().enumerate() {
            let node = WalkNode::from_words(nodes[*at]);
            let is_right = keys[from[walk] + node.key] > node.last_left;
            *at += node.left_offset + usize::from(is_right);
            moved |= node.left_offset;
        }
        // Leaves compare the first key and have offset 0.
        if moved == 0 {
            break;
        }
    }
    at.map(|at| WalkNode::from_words(nodes[at]).last_left)
}
