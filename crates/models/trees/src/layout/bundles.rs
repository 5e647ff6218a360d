//! Tree bundles: the form of a model for one-row SHAP, which processes eight trees at a time.
//!
//! **Problem.** A vector register holds eight doubles, but SHAP of one row needs only a few
//! quadrature points per tree. There are many trees, but their shapes differ.
//!
//! **Approach.** Eight trees of similar size form a *bundle*, one tree per *lane* of a vector. The
//! children of every split are ordered by size, larger first, to make the shapes of the trees
//! similar, and their nodes are merged: a *bundle node* is a position at which at least one of the
//! trees has a split. An engine traverses the bundle like one tree, in pre-order; the constants of
//! each tree's split at a node are in the lane of that tree. Where one tree has a leaf and others
//! have further splits, the engine blends in the leaf's value on the way back up.
//!
//! All trees of a bundle have the same number of quadrature points. The order of the bundles, and
//! of the trees in them, is the summation order of contributions, also for many rows.
//!
//! **Limits.** Models accepted by `EnsembleView::has_vector_shap`. A tree with a single leaf is in
//! no bundle, because it contributes only to the bias.

/// Trees per bundle.
pub(crate) const LANES: usize = 8;

/// Encoding of a [`BundleHeader`].
pub(crate) type BundleWords = [u32; 6];

/// Start of a bundle in each array. An additional header follows the last bundle; its starts are
/// the ends of that bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BundleHeader {
    /// Quadrature points that are exact for all trees of the bundle.
    pub(crate) points: usize,
    /// Start in [`BundlesView::nodes`]; times [`LANES`], in [`BundlesView::key_tests`].
    pub(crate) nodes: usize,
    /// Start in [`BundlesView::constants`].
    pub(crate) constants: usize,
    /// Start in [`BundlesView::earlier_edges`].
    pub(crate) earlier_edges: usize,
    /// Start in [`BundlesView::scatter`].
    pub(crate) scatter: usize,
    /// Number of bundle nodes on the longest path.
    pub(crate) depth: usize,
}

impl BundleHeader {
    pub(crate) fn from_words(words: BundleWords) -> Self {
        let [points, nodes, constants, earlier_edges, scatter, depth] =
            words.map(|word| word as usize);
        Self {
            points,
            nodes,
            constants,
            earlier_edges,
            scatter,
            depth,
        }
    }

    pub(crate) fn words(self) -> BundleWords {
        [
            self.points,
            self.nodes,
            self.constants,
            self.earlier_edges,
            self.scatter,
            self.depth,
        ]
        .map(|word| word as u32)
    }
}

/// Which children of a bundle node are bundle nodes. The second child is one only if the first is,
/// because the first child is the larger one in every lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InnerChildren {
    /// Both children are leaves in every lane.
    Neither,
    /// The second child is a leaf in every lane.
    First,
    Both,
}

/// Encoding of a [`BundleNode`].
pub(crate) type BundleNodeBytes = [u8; 8];

/// A node of a bundle. The masks have one bit per lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BundleNode {
    pub(crate) inner_children: InnerChildren,
    /// Lanes in which the first child is a leaf.
    pub(crate) first_leaf_lanes: u8,
    /// Lanes in which the second child is a leaf.
    pub(crate) second_leaf_lanes: u8,
    /// Lanes in which an earlier split of the path has the same feature.
    pub(crate) repeated_lanes: u8,
    /// Lanes in which the first child is the right one.
    pub(crate) flipped_lanes: u8,
}

impl BundleNode {
    /// Decodes a node; `open` rejects a first byte other than 0, 1 or 2.
    #[inline(always)]
    pub(crate) fn from_bytes(bytes: BundleNodeBytes) -> Self {
        Self {
            inner_children: match bytes[0] {
                0 => InnerChildren::Neither,
                1 => InnerChildren::First,
                _ => InnerChildren::Both,
            },
            first_leaf_lanes: bytes[1],
            second_leaf_lanes: bytes[2],
            repeated_lanes: bytes[3],
            flipped_lanes: bytes[4],
        }
    }

    pub(crate) fn bytes(self) -> BundleNodeBytes {
        [
            self.inner_children as u8,
            self.first_leaf_lanes,
            self.second_leaf_lanes,
            self.repeated_lanes,
            self.flipped_lanes,
            0,
            0,
            0,
        ]
    }

    /// Returns the number of constant vectors of this node, each of [`LANES`] doubles. In this
    /// order:
    ///
    /// * both children leaves in all lanes: the expected value, the first and the second leaf;
    /// * otherwise: the cover shares of the first and of the second child, the values of leaves
    ///   that are first children (if any), the values of leaves that are second children (if any);
    /// * then, if a feature is repeated in some lane: the product of its earlier cover shares,
    ///   and 1 / f at each quadrature point (see `shap::contributions`).
    #[inline(always)]
    pub(crate) fn constant_vectors(self, points: usize) -> usize {
        let own = match self.inner_children {
            InnerChildren::Neither => 3,
            InnerChildren::First | InnerChildren::Both => {
                2 + usize::from(self.first_leaf_lanes != 0)
                    + usize::from(self.second_leaf_lanes != 0)
            }
        };
        own + if self.repeated_lanes == 0 {
            0
        } else {
            1 + points
        }
    }
}

/// The nearest earlier edge, on the same path, of a feature that is split on again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlierEdge {
    /// The bundle node that splits on the feature again.
    pub(crate) node: usize,
    /// The bundle node at the upper end of the edge.
    pub(crate) upper: usize,
    pub(crate) lane: usize,
    /// Whether the edge leads to the first child.
    pub(crate) is_first: bool,
}

/// Bits of a bundle node index: eight trees of 255 splits.
const NODE_BITS: u32 = 11;

impl EarlierEdge {
    pub(crate) fn from_word(word: u32) -> Self {
        let mask = (1 << NODE_BITS) - 1;
        Self {
            node: (word & mask) as usize,
            upper: (word >> NODE_BITS & mask) as usize,
            lane: (word >> (2 * NODE_BITS) & 7) as usize,
            is_first: word >> (2 * NODE_BITS + 3) & 1 == 1,
        }
    }

    pub(crate) fn word(self) -> u32 {
        let first = u32::from(self.is_first) << (2 * NODE_BITS + 3);
        let lane = (self.lane as u32) << (2 * NODE_BITS);
        first | lane | (self.upper as u32) << NODE_BITS | self.node as u32
    }
}

/// Destination of the contribution of one split of one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScatterEntry {
    /// Index of the bundle node times [`LANES`], plus the lane.
    pub(crate) slot: usize,
    /// Feature, as an index among the split features of the model.
    pub(crate) split_feature: usize,
}

impl ScatterEntry {
    #[inline(always)]
    pub(crate) fn from_word(word: u32) -> Self {
        Self {
            slot: (word >> 16) as usize,
            split_feature: (word & 0xffff) as usize,
        }
    }

    pub(crate) fn word(self) -> u32 {
        (self.slot as u32) << 16 | self.split_feature as u32
    }
}

/// Tree bundles of an image. All slices are empty if the model has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BundlesView<'a> {
    /// [`BundleHeader`]s.
    pub(crate) headers: &'a [BundleWords],
    /// Trees in the lanes of each bundle; `NONE`: an empty lane.
    pub(crate) trees: &'a [[u32; LANES]],
    /// [`BundleNode`]s in pre-order, first child first.
    pub(crate) nodes: &'a [BundleNodeBytes],
    /// For each node and lane, the smallest key that goes right, and the index of the key to
    /// compare among the keys of a row.
    pub(crate) key_tests: &'a [[u32; 2]],
    /// [`EarlierEdge`]s.
    pub(crate) earlier_edges: &'a [u32],
    /// [`ScatterEntry`]s: for each lane the splits of its tree in post-order.
    pub(crate) scatter: &'a [u32],
    /// The vectors of [`BundleNode::constant_vectors`] of each node.
    pub(crate) constants: &'a [f64],
}

impl BundlesView<'_> {
    /// Returns the number of bundles.
    pub(crate) fn len(&self) -> usize {
        self.trees.len()
    }

    /// Returns the header of a bundle and the next one, whose starts are the ends of its arrays.
    #[inline(always)]
    pub(crate) fn headers_of(&self, bundle: usize) -> (BundleHeader, BundleHeader) {
        let header = |index: usize| BundleHeader::from_words(self.headers[index]);
        (header(bundle), header(bundle + 1))
    }
}
