//! Kernels: algorithms that find the leaf of every row in every tree. All give the same bits as
//! [`Kernel::Nodes`]. Which one is fastest depends on the model, the number of rows and the cpu:
//! `selection` stores the choice, `tuning` measures it.
//!
//! Margins start from the base margin and add leaf values tree by tree in model order, in the
//! library's element type. This order, and therefore the result, does not depend on how rows are
//! batched or divided among threads.

pub(crate) mod blocks;
mod kind;
pub(crate) mod nodes;
pub(crate) mod selection;
pub(crate) mod walk;

#[cfg(test)]
pub(crate) mod tests;

use std::ops::{Add, AddAssign, Div, Range};

use albacore_formats::Library;

use crate::kernel::blocks::BlockScratch;
use crate::kernel::selection::KernelSelection;
use crate::layout::ensemble::{EnsembleView, TreeView};
use crate::limits::BLOCK_ROWS;
use crate::rows::Rows;

pub use kind::Kernel;
pub(crate) use kind::KernelEngine;

/// Memory reused by subsequent kernel calls.
#[derive(Debug, Default)]
pub(crate) struct KernelScratch {
    pub(crate) blocks: BlockScratch,
    pub(crate) keys: Vec<u32>,
    /// Values gathered from a row.
    pub(crate) f32s: Vec<f32>,
}

/// One vector per type of running sum; a model uses one of them.
#[derive(Debug, Default)]
pub(crate) struct FloatVectors {
    pub(crate) f32s: Vec<f32>,
    pub(crate) f64s: Vec<f64>,
}

/// Running sums by type.
pub(crate) enum FloatsMut<'a> {
    Singles(&'a mut [f32]),
    Doubles(&'a mut [f64]),
}

/// A running sum in the library's element type.
pub(crate) trait Sum: Copy + Add<Output = Self> + AddAssign + Div<Output = Self> {
    /// Converts to the nearest value of this type; exact for leaf values of XGBoost, which are
    /// `f32`.
    fn of(value: f64) -> Self;
    /// Returns the sums by type.
    fn floats(sums: &mut [Self]) -> FloatsMut<'_>;
    /// Returns the sums of the rows of a block for each group.
    fn sums(scratch: &mut BlockScratch) -> &mut Vec<[Self; BLOCK_ROWS]>;
    /// Returns the values of this type.
    fn values(vectors: &FloatVectors) -> &[Self];
    /// Returns the vector of this type.
    fn vector(vectors: &mut FloatVectors) -> &mut Vec<Self>;
}

impl Sum for f32 {
    #[inline]
    fn of(value: f64) -> Self {
        value as Self
    }

    fn floats(sums: &mut [Self]) -> FloatsMut<'_> {
        FloatsMut::Singles(sums)
    }

    fn sums(scratch: &mut BlockScratch) -> &mut Vec<[Self; BLOCK_ROWS]> {
        &mut scratch.f32s
    }

    fn values(vectors: &FloatVectors) -> &[Self] {
        &vectors.f32s
    }

    fn vector(vectors: &mut FloatVectors) -> &mut Vec<Self> {
        &mut vectors.f32s
    }
}

impl Sum for f64 {
    #[inline]
    fn of(value: f64) -> Self {
        value
    }

    fn floats(sums: &mut [Self]) -> FloatsMut<'_> {
        FloatsMut::Doubles(sums)
    }

    fn sums(scratch: &mut BlockScratch) -> &mut Vec<[Self; BLOCK_ROWS]> {
        &mut scratch.f64s
    }

    fn values(vectors: &FloatVectors) -> &[Self] {
        &vectors.f64s
    }

    fn vector(vectors: &mut FloatVectors) -> &mut Vec<Self> {
        &mut vectors.f64s
    }
}

/// Model and rows of a call, with the kernel selection.
#[derive(Clone, Copy)]
pub(crate) struct KernelCall<'a> {
    pub(crate) view: &'a EnsembleView<'a>,
    pub(crate) library: Library,
    pub(crate) rows: Rows<'a>,
    pub(crate) selection: &'a KernelSelection,
}

impl<'a> KernelCall<'a> {
    fn count(&self) -> usize {
        self.rows.values() / self.view.features
    }

    fn part(&self, rows: Range<usize>) -> Self {
        Self {
            rows: self.rows.rows(rows, self.view.features),
            ..*self
        }
    }

    /// Splits the rows into parts with the engine of each: single blocks, or two blocks together if
    /// both have the same engine.
    fn parts(self) -> impl Iterator<Item = (Range<usize>, KernelEngine, Self)> {
        let count = self.count();
        let mut start = 0;
        std::iter::from_fn(move || {
            let left = count - start;
            let engine = self.selection.engine(left.min(BLOCK_ROWS));
            let others = left.saturating_sub(BLOCK_ROWS).min(BLOCK_ROWS);
            let are_two = matches!(engine, KernelEngine::Blocks(_))
                && others > 0
                && self.selection.engine(others) == engine;
            let most = if are_two {
                blocks::ROWS_MAX
            } else {
                BLOCK_ROWS
            };
            let rows = start..start + left.min(most);
            start = rows.end;
            (left > 0).then(|| (rows.clone(), engine, self.part(rows)))
        })
    }

    /// Adds the leaf values of the rows to `margins`, rows x groups.
    pub(crate) fn margins<T: Sum>(
        self,
        trees: Range<usize>,
        margins: &mut [T],
        scratch: &mut KernelScratch,
    ) {
        let groups = self.view.groups;
        for (rows, engine, part) in self.parts() {
            let margins = &mut margins[rows.start * groups..rows.end * groups];
            let form = &self.view.binned;
            match (engine, T::floats(margins)) {
                (KernelEngine::Blocks(simd), FloatsMut::Singles(margins))
                    if !form.leaf_values.is_empty() =>
                {
                    let add = |leaves: Range<usize>, reached: &_, sums: &mut _| {
                        let values = &form.leaf_values[leaves.start..];
                        simd.add_leaf_values(values, leaves.len(), reached, sums);
                    };
                    let scratch = &mut scratch.blocks;
                    blocks::sum_table(part, simd, trees.clone(), margins, scratch, add);
                }
                (KernelEngine::Blocks(simd), FloatsMut::Doubles(margins))
                    if !form.leaf_f64s.is_empty() =>
                {
                    let add = |leaves: Range<usize>, reached: &_, sums: &mut _| {
                        blocks::add_leaf_f64s(&form.leaf_f64s[leaves.start..], reached, sums);
                    };
                    let scratch = &mut scratch.blocks;
                    blocks::sum_table(part, simd, trees.clone(), margins, scratch, add);
                }
                (KernelEngine::Blocks(simd), _) => {
                    blocks::sum(part, simd, trees.clone(), margins, &mut scratch.blocks);
                }
                (KernelEngine::Walk, FloatsMut::Singles(margins)) => {
                    walk::sum(part, trees.clone(), margins, f32::from_bits, scratch);
                }
                (KernelEngine::Walk, FloatsMut::Doubles(margins)) => {
                    let value = |leaf: u32| form.leaf_f64s[leaf as usize];
                    walk::sum(part, trees.clone(), margins, value, scratch);
                }
                (KernelEngine::Nodes, _) => nodes::sum(part, trees.clone(), margins),
            }
        }
    }

    /// Computes the leaf value of each tree of the range for up to a block of rows: trees x rows,
    /// and x groups if leaves have one value per group.
    pub(crate) fn values<T: Sum>(
        self,
        trees: Range<usize>,
        out: &mut Vec<T>,
        scratch: &mut KernelScratch,
    ) {
        let (form, count) = (&self.view.binned, self.count());
        out.clear();
        let mut push = |tree: &TreeView<'_>, leaf: usize| {
            out.extend(tree.leaf_values(leaf).iter().map(|&value| T::of(value)));
        };
        match self.selection.engine(count) {
            KernelEngine::Walk => {
                out.resize(trees.len() * count, T::of(0.0));
                match T::floats(out) {
                    FloatsMut::Singles(out) => {
                        walk::values(self, trees, out, f32::from_bits, scratch);
                    }
                    FloatsMut::Doubles(out) => {
                        let value = |leaf: u32| form.leaf_f64s[leaf as usize];
                        walk::values(self, trees, out, value, scratch);
                    }
                }
            }
            KernelEngine::Blocks(simd) => {
                let scratch = &mut scratch.blocks;
                blocks::for_each_tree(self, simd, trees, scratch, |index, _, reached| {
                    let tree = self.view.tree(index);
                    let leaves = &form.leaf_nodes[self.view.leaves_of(index)];
                    for &leaf in &reached.0[..count] {
                        push(&tree, leaves[usize::from(leaf)] as usize);
                    }
                });
            }
            KernelEngine::Nodes => {
                nodes::for_each_leaf(self, trees, |_, _, tree, leaf| push(tree, leaf))
            }
        }
    }

    /// Computes the library's leaf numbers for the rows: rows x trees of the range.
    pub(crate) fn leaves(
        self,
        trees: Range<usize>,
        leaves: &mut [i32],
        scratch: &mut KernelScratch,
    ) {
        let width = trees.len();
        for (rows, engine, part) in self.parts() {
            let leaves = &mut leaves[rows.start * width..rows.end * width];
            match engine {
                KernelEngine::Blocks(simd) => {
                    blocks::leaves(part, simd, trees.clone(), leaves, &mut scratch.blocks);
                }
                KernelEngine::Walk | KernelEngine::Nodes => {
                    nodes::leaves(part, trees.clone(), leaves)
                }
            }
        }
    }
}
