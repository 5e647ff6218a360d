//! The engines' view of a compiled model: borrowed slices, without copies.
//!
//! An [`EnsembleView`] borrows the arrays of an opened image; [`EnsembleView::tree`] returns one
//! tree. `open` has checked these invariants, so engines index without further checks:
//!
//! * nodes are in pre-order: node 0 is the root, and a child's index is greater than its parent's
//!   and below [`TreeView::nodes`], so that every walk terminates. [`TreeView::label`] is the
//!   library's number of a node or leaf; nodes deleted by the library are not in the view;
//! * a path has at most [`TreeView::depth`] steps, at most
//!   [`limits::DEPTH_MAX`](crate::limits::DEPTH_MAX): use a stack instead of recursion;
//! * features of splits are below [`EnsembleView::features`];
//! * `earlier_edge` of a split is at most its own index (equal to it if the split has the feature
//!   of its parent) or [`NONE`].
//!
//! An engine reads a *prepared* row: `features` values in `f64`. For XGBoost these are widened
//! `f32` values; for LightGBM values of magnitude up to [`ZERO_MAX`] are set to 0, as in its
//! reader.

use std::ops::Range;

use crate::layout::binned::{BinColumn, BinnedView, KeyLayout};
use crate::layout::bundles::{BundlesView, ScatterEntry};
use crate::limits::{CATEGORY_MAX, SHAP_POINTS_MAX};
use crate::rows::ZERO_MAX;

pub(crate) use albacore_formats::flag;

/// Index value for none: no earlier edge in `earlier_edge`, no tree in a lane of a bundle.
pub(crate) const NONE: u32 = u32::MAX;

/// The outputs that the leaves of a tree add to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeafTarget {
    /// One value per leaf, added to this group.
    Group(usize),
    /// One value per group in each leaf (XGBoost's `multi_output_tree`).
    All,
}

/// A whole model, borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnsembleView<'a> {
    /// Number of features, the width of a row.
    pub(crate) features: usize,
    /// Outputs per row: classes, targets, or 1.
    pub(crate) groups: usize,
    /// Base score as a margin, per group.
    pub(crate) base: &'a [f64],
    /// Whether values, unlike margins, are averages over the iterations (LightGBM's random
    /// forests).
    pub(crate) is_averaged: bool,
    pub(crate) iteration_starts: &'a [u32],
    pub(crate) node_starts: &'a [u32],
    pub(crate) depths: &'a [u32],
    pub(crate) path_features: &'a [u32],
    pub(crate) tree_groups: &'a [u32],
    pub(crate) expected: &'a [f64],
    pub(crate) left: &'a [u32],
    pub(crate) right: &'a [u32],
    pub(crate) feature: &'a [u32],
    pub(crate) flags: &'a [u8],
    pub(crate) value: &'a [f64],
    pub(crate) label: &'a [u32],
    pub(crate) share: &'a [f64],
    pub(crate) earlier_share: &'a [f64],
    pub(crate) earlier_edge: &'a [u32],
    pub(crate) leaf_vectors: &'a [f64],
    pub(crate) set_starts: &'a [u32],
    pub(crate) set_word_indices: &'a [u32],
    pub(crate) set_words: &'a [u32],
    pub(crate) binned: BinnedView<'a>,
    pub(crate) bundles: BundlesView<'a>,
}

/// Value in [`EnsembleView::tree_groups`] of a tree whose leaves have one value per group.
pub(crate) const ALL_GROUPS: u32 = u32::MAX;

impl<'a> EnsembleView<'a> {
    pub(crate) fn trees(&self) -> usize {
        self.tree_groups.len()
    }

    /// Returns the number of boosting iterations.
    pub(crate) fn iterations(&self) -> usize {
        self.iteration_starts.len().saturating_sub(1)
    }

    /// Returns the trees of a range of iterations; `None` if it is out of range.
    pub(crate) fn trees_of(&self, iterations: Range<usize>) -> Option<Range<usize>> {
        let start = *self.iteration_starts.get(iterations.start)?;
        let end = *self.iteration_starts.get(iterations.end)?;
        (start <= end).then_some(start as usize..end as usize)
    }

    /// Returns a tree; `index` must be below [`trees`](Self::trees).
    pub(crate) fn tree(&self, index: usize) -> TreeView<'a> {
        let nodes = self.node_starts[index] as usize..self.node_starts[index + 1] as usize;
        let target = self.target(index);
        let stride = match target {
            LeafTarget::All => self.groups,
            LeafTarget::Group(_) => 1,
        };
        TreeView {
            target,
            depth: self.depths[index] as usize,
            path_features: self.path_features[index] as usize,
            expected: &self.expected[index * stride..(index + 1) * stride],
            left: &self.left[nodes.clone()],
            right: &self.right[nodes.clone()],
            feature: &self.feature[nodes.clone()],
            flags: &self.flags[nodes.clone()],
            value: &self.value[nodes.clone()],
            label: &self.label[nodes.clone()],
            share: &self.share[nodes.clone()],
            earlier_share: &self.earlier_share[nodes.clone()],
            earlier_edge: &self.earlier_edge[nodes],
            leaf_vectors: self.leaf_vectors,
            groups: self.groups,
            sets: self.sets(),
        }
    }

    /// Returns the outputs that the leaves of a tree add to.
    pub(crate) fn target(&self, tree: usize) -> LeafTarget {
        match self.tree_groups[tree] {
            ALL_GROUPS => LeafTarget::All,
            group => LeafTarget::Group(group as usize),
        }
    }

    /// Returns the trees of a bundle in lane order: the group of each, and the destinations of its
    /// splits' contributions.
    pub(crate) fn scatter_of(
        &self,
        bundle: usize,
    ) -> impl Iterator<Item = (usize, impl Iterator<Item = ScatterEntry> + use<'a>)> {
        let (view, bundles) = (*self, self.bundles);
        let (header, _) = bundles.headers_of(bundle);
        let mut remaining = &bundles.scatter[header.scatter..];
        let trees = bundles.trees[bundle].iter().filter(|&&tree| tree != NONE);
        trees.map(move |&tree| {
            let tree = tree as usize;
            let (own, others) = remaining.split_at(view.splits_of(tree).len());
            remaining = others;
            let entries = own.iter().map(|&word| ScatterEntry::from_word(word));
            (view.tree_groups[tree] as usize, entries)
        })
    }

    /// Returns the category sets of the categorical splits.
    pub(crate) fn sets(&self) -> CategorySetsView<'a> {
        CategorySetsView {
            starts: self.set_starts,
            word_indices: self.set_word_indices,
            words: self.set_words,
        }
    }

    /// Returns whether a split may be categorical.
    pub(crate) fn has_sets(&self) -> bool {
        self.set_starts.len() > 1
    }

    /// Returns the range of the splits of a tree in the binned form.
    pub(crate) fn splits_of(&self, tree: usize) -> Range<usize> {
        let splits = |starts: usize| (self.node_starts[starts] as usize - starts) / 2;
        splits(tree)..splits(tree + 1)
    }

    /// Returns the range of the leaves of a tree in the binned form: one more than its splits.
    pub(crate) fn leaves_of(&self, tree: usize) -> Range<usize> {
        let Range { start, end } = self.splits_of(tree);
        start + tree..end + tree + 1
    }

    /// Returns the layout of the keys of a row.
    pub(crate) fn key_layout(&self) -> KeyLayout {
        self.binned.key_layout(self.features)
    }

    /// Returns the number of keys of a row.
    pub(crate) fn key_count(&self) -> usize {
        let is_set = |words: &&[u32; 4]| BinColumn::from_words(**words).is_categorical();
        let sets = match self.has_sets() {
            true => self.binned.columns.iter().filter(is_set).count(),
            false => 0,
        };
        self.key_layout().categorical_start() + sets
    }

    /// Returns whether rows have keys, which the walk kernel and one-row SHAP read.
    pub(crate) fn has_keys(&self) -> bool {
        !self.binned.walk_nodes.is_empty()
    }

    /// Returns whether rows have byte blocks.
    pub(crate) fn has_blocks(&self) -> bool {
        !self.binned.leaf_nodes.is_empty()
    }

    /// Returns whether SHAP values are computed by `shap::contributions`: the model has blocks, its
    /// leaves have one value each, and no path has more than [`SHAP_POINTS_MAX`] times two
    /// features.
    pub(crate) fn has_vector_shap(&self) -> bool {
        let mut lengths = self.path_features.iter().zip(self.depths);
        self.has_blocks()
            && self.leaf_vectors.is_empty()
            && lengths.all(|(&a, &b)| a.min(b) as usize <= 2 * SHAP_POINTS_MAX)
    }
}

/// Category sets as sparse bitsets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CategorySetsView<'a> {
    starts: &'a [u32],
    word_indices: &'a [u32],
    words: &'a [u32],
}

impl CategorySetsView<'_> {
    /// Returns whether a set contains the category `x`; `inclusive` as in [`flag::INCLUSIVE`].
    pub(crate) fn has(&self, set: usize, x: f64, inclusive: bool) -> bool {
        let is_category = if inclusive { x > -1.0 } else { x >= 0.0 };
        if !is_category || x >= f64::from(CATEGORY_MAX) {
            return false;
        }
        let category = x as u32;
        let words = self.starts[set] as usize..self.starts[set + 1] as usize;
        let word_indices = &self.word_indices[words.clone()];
        let Ok(position) = word_indices.binary_search(&(category / 32)) else {
            return false;
        };
        self.words[words][position] >> (category % 32) & 1 == 1
    }
}

/// One tree, borrowed. All slices except the private ones are indexed by node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeView<'a> {
    /// Outputs that the leaves add to.
    pub(crate) target: LeafTarget,
    /// Number of edges from the root to the deepest leaf.
    pub(crate) depth: usize,
    /// Maximum number of distinct features on a path.
    pub(crate) path_features: usize,
    /// Cover-weighted mean of the leaves: the contribution of the tree to the bias. One value, or
    /// one per group if the target is [`LeafTarget::All`].
    pub(crate) expected: &'a [f64],
    /// Left child. For a leaf: its index among all vector leaves of the model, or 0.
    pub(crate) left: &'a [u32],
    /// Right child; 0 for a leaf.
    pub(crate) right: &'a [u32],
    /// Feature of the split; 0 for a leaf.
    pub(crate) feature: &'a [u32],
    /// Bits of [`flag`].
    pub(crate) flags: &'a [u8],
    /// Threshold of a split; index of the set of a categorical split; value of a leaf (including
    /// DART's weight).
    pub(crate) value: &'a [f64],
    /// Node number in the library: XGBoost's node id, LightGBM's leaf index.
    pub(crate) label: &'a [u32],
    /// Share (fraction) of the parent's cover, see `compile::paths`.
    pub(crate) share: &'a [f64],
    /// Product of the earlier cover shares of a split's feature, see `compile::paths`.
    pub(crate) earlier_share: &'a [f64],
    /// Lower node of the nearest earlier edge of a split's feature, see `compile::paths`.
    pub(crate) earlier_edge: &'a [u32],
    leaf_vectors: &'a [f64],
    groups: usize,
    sets: CategorySetsView<'a>,
}

impl<'a> TreeView<'a> {
    /// Returns the number of quadrature points that is exact for the SHAP values of the tree: half
    /// the features of its longest path, rounded up.
    pub(crate) fn quadrature_points(&self) -> usize {
        self.path_features.min(self.depth).div_ceil(2)
    }

    pub(crate) fn nodes(&self) -> usize {
        self.flags.len()
    }

    /// Returns whether the node is a leaf.
    #[inline]
    pub(crate) fn is_leaf(&self, node: usize) -> bool {
        self.flags[node] & flag::LEAF != 0
    }

    /// Returns the values of a leaf: one for [`LeafTarget::Group`], `groups` for
    /// [`LeafTarget::All`].
    #[inline]
    pub(crate) fn leaf_values(&self, leaf: usize) -> &'a [f64] {
        match self.target {
            LeafTarget::Group(_) => &self.value[leaf..=leaf],
            LeafTarget::All => {
                &self.leaf_vectors[self.left[leaf] as usize * self.groups..][..self.groups]
            }
        }
    }

    /// Returns whether the value `x` of its feature goes left at the split `node`.
    #[inline]
    pub(crate) fn goes_left(&self, node: usize, x: f64) -> bool {
        let flags = self.flags[node];
        let x = if x.is_nan() && flags & flag::MISSING_NAN == 0 {
            0.0
        } else {
            x
        };
        let missing = x.is_nan() || (flags & flag::MISSING_ZERO != 0 && x.abs() <= ZERO_MAX);
        if missing {
            flags & flag::DEFAULT_LEFT != 0
        } else if flags & flag::CATEGORICAL != 0 {
            let inclusive = flags & flag::INCLUSIVE != 0;
            self.sets.has(self.value[node] as usize, x, inclusive) == inclusive
        } else if flags & flag::INCLUSIVE != 0 {
            x <= self.value[node]
        } else {
            x < self.value[node]
        }
    }

    /// Returns the leaf that a row reaches; `value` returns the prepared value of a feature.
    /// Preparing only the values that a tree compares is cheaper than preparing wide rows.
    #[inline]
    pub(crate) fn leaf_of(&self, value: impl Fn(usize) -> f64) -> usize {
        let mut node = 0;
        // bound: a child's index is greater than its parent's.
        while !self.is_leaf(node) {
            let left = self.goes_left(node, value(self.feature[node] as usize));
            node = if left {
                self.left[node]
            } else {
                self.right[node]
            } as usize;
        }
        node
    }
}
