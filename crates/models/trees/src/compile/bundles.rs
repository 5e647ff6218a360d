//! Merges trees into bundles, see `layout::bundles`.

use crate::compile::key_tests::KeyTests;
use crate::layout::binned::BinColumn;
use crate::layout::bundles::{
    BundleHeader, BundleNode, BundleNodeBytes, BundleWords, EarlierEdge, InnerChildren, LANES,
    ScatterEntry,
};
use crate::layout::ensemble::{EnsembleView, NONE, TreeView};
use crate::layout::image::{BUNDLE_ARRAYS, Image};
use crate::shap::quadrature;

/// Arrays of [`BundlesView`](crate::layout::bundles::BundlesView).
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    headers: Vec<BundleWords>,
    trees: Vec<[u32; LANES]>,
    nodes: Vec<BundleNodeBytes>,
    key_tests: Vec<[u32; 2]>,
    earlier_edges: Vec<u32>,
    scatter: Vec<u32>,
    constants: Vec<f64>,
}

/// Tree nodes of the lanes at a bundle node; `None`: the tree has no split there.
type LaneNodes = [Option<usize>; LANES];

impl Bundles {
    /// Appends the arrays to an image; returns their lengths.
    pub(crate) fn push_to(&self, image: &mut Image) -> [u64; BUNDLE_ARRAYS] {
        [
            image.push(&self.headers),
            image.push(&self.trees),
            image.push(&self.nodes),
            image.push(&self.key_tests),
            image.push(&self.earlier_edges),
            image.push(&self.scatter),
            image.push(&self.constants),
        ]
    }

    /// Builds the bundles of a model that [`EnsembleView::has_vector_shap`] accepts.
    pub(crate) fn build(view: &EnsembleView<'_>) -> Self {
        // Only the sort keys are stored: fifty thousand small trees use more memory than their
        // image.
        let trees = (0..view.trees()).map(|index| BundledTree::new(view, index));
        let with_splits = trees.filter(|tree| tree.splits() > 0);
        let mut order: Vec<SortKey> = with_splits.map(|tree| tree.sort_key()).collect();
        order.sort_unstable();
        let mut bundles = Self::default();
        // Key tests of a model without keys are never read.
        let keys = (view.has_keys()).then(|| KeyTests::new(view.binned, view.features));
        for order in order.chunk_by(|a, b| a.points == b.points) {
            for order in order.chunks(LANES) {
                let lanes = order.iter().map(|key| BundledTree::new(view, key.tree));
                bundles.push_bundle(view, keys.as_ref(), &mut lanes.collect::<Vec<_>>());
            }
        }
        bundles.headers.push(bundles.next_header(0).words());
        bundles
    }

    /// Returns the header of a bundle that starts at the current ends of the arrays.
    fn next_header(&self, points: usize) -> BundleHeader {
        BundleHeader {
            points,
            nodes: self.nodes.len(),
            constants: self.constants.len(),
            earlier_edges: self.earlier_edges.len(),
            scatter: self.scatter.len(),
            depth: 0,
        }
    }

    fn push_bundle(
        &mut self,
        view: &EnsembleView<'_>,
        keys: Option<&KeyTests<'_>>,
        lanes: &mut [BundledTree<'_>],
    ) {
        let Some(first) = lanes.first() else { return };
        let mut header = self.next_header(first.points());
        let rule = quadrature::rule(header.points);
        let lane_tree = |lane: usize| lanes.get(lane).map_or(NONE, |tree| tree.index as u32);
        self.trees.push(std::array::from_fn(lane_tree));
        let roots: LaneNodes = std::array::from_fn(|lane| (lane < lanes.len()).then_some(0));
        let mut pending = vec![(roots, 1)];
        // bound: every iteration consumes a split of some tree.
        while let Some((nodes, depth)) = pending.pop() {
            header.depth = header.depth.max(depth);
            let bundle_node = self.nodes.len() - header.nodes;
            for (tree, node) in lanes.iter_mut().zip(nodes) {
                if let Some(node) = node {
                    tree.bundle_nodes[node] = bundle_node;
                }
            }
            let children = self.push_node(lanes, nodes, &rule);
            for children in children.into_iter().rev() {
                if children.iter().any(Option::is_some) {
                    pending.push((children, depth + 1));
                }
            }
            self.push_key_tests(view, keys, lanes, nodes);
            self.push_earlier_edges(lanes, nodes, bundle_node);
        }
        self.headers.push(header.words());
        for (lane, tree) in lanes.iter().enumerate() {
            self.push_scatter(view, lane, tree);
        }
    }

    /// Appends a bundle node and its constants; returns the splits among its children.
    fn push_node(
        &mut self,
        lanes: &[BundledTree<'_>],
        nodes: LaneNodes,
        rule: &[(f64, f64)],
    ) -> [LaneNodes; 2] {
        let mut inner = [[None; LANES]; 2];
        let mut leaf_lanes = [0_u8; 2];
        let (mut repeated_lanes, mut flipped_lanes) = (0, 0);
        let (mut shares, mut leaves) = ([[0.0; LANES]; 2], [[0.0; LANES]; 2]);
        let mut products = [1.0; LANES];
        for (lane, (bundled, node)) in lanes.iter().zip(nodes).enumerate() {
            let Some(node) = node else { continue };
            let tree = &bundled.tree;
            let (children, is_flipped) = bundled.children(node);
            flipped_lanes |= u8::from(is_flipped) << lane;
            repeated_lanes |= u8::from(tree.earlier_edge[node] != NONE) << lane;
            products[lane] = tree.earlier_share[node];
            for (side, child) in children.into_iter().enumerate() {
                shares[side][lane] = tree.share[child];
                if tree.is_leaf(child) {
                    leaf_lanes[side] |= 1 << lane;
                    leaves[side][lane] = tree.value[child];
                } else {
                    inner[side][lane] = Some(child);
                }
            }
        }
        let node = BundleNode {
            inner_children: match inner.map(|nodes| nodes.iter().any(Option::is_some)) {
                [_, true] => InnerChildren::Both,
                [true, false] => InnerChildren::First,
                [false, false] => InnerChildren::Neither,
            },
            first_leaf_lanes: leaf_lanes[0],
            second_leaf_lanes: leaf_lanes[1],
            repeated_lanes,
            flipped_lanes,
        };
        self.nodes.push(node.bytes());
        // The vectors of `BundleNode::constant_vectors`.
        if node.inner_children == InnerChildren::Neither {
            let expected: [f64; LANES] = std::array::from_fn(|lane| {
                shares[0][lane] * leaves[0][lane] + shares[1][lane] * leaves[1][lane]
            });
            self.constants.extend(expected);
            self.constants.extend(leaves.as_flattened());
        } else {
            self.constants.extend(shares.as_flattened());
            for (leaf_lanes, leaves) in leaf_lanes.iter().zip(leaves) {
                if *leaf_lanes != 0 {
                    self.constants.extend(leaves);
                }
            }
        }
        if repeated_lanes != 0 {
            self.constants.extend(products);
            for &(t, _) in rule {
                let inverse = |lane: usize| match repeated_lanes >> lane & 1 {
                    0 => 1.0,
                    _ => 1.0 / (products[lane] * (1.0 - t) + t),
                };
                self.constants.extend((0..LANES).map(inverse));
            }
        }
        inner
    }

    fn push_key_tests(
        &mut self,
        view: &EnsembleView<'_>,
        keys: Option<&KeyTests<'_>>,
        lanes: &[BundledTree<'_>],
        nodes: LaneNodes,
    ) {
        for (lane, node) in nodes.into_iter().enumerate() {
            let test = keys.zip(lanes.get(lane)).zip(node);
            let test = test.map(|((keys, tree), node)| {
                let (column, byte) = tree.split(view, node);
                keys.of_split(column, byte)
            });
            self.key_tests.push(test.unwrap_or([0, 0]));
        }
    }

    fn push_earlier_edges(
        &mut self,
        lanes: &[BundledTree<'_>],
        nodes: LaneNodes,
        bundle_node: usize,
    ) {
        for (lane, (tree, node)) in lanes.iter().zip(nodes).enumerate() {
            let Some(lower) = node.map(|node| tree.tree.earlier_edge[node]) else {
                continue;
            };
            if lower == NONE {
                continue;
            }
            let lower = lower as usize;
            let upper = tree.parents[lower] as usize;
            let edge = EarlierEdge {
                node: bundle_node,
                upper: tree.bundle_nodes[upper],
                lane,
                is_first: tree.children(upper).0[0] == lower,
            };
            self.earlier_edges.push(edge.word());
        }
    }

    /// Appends the scatter entries of a tree in post-order.
    fn push_scatter(&mut self, view: &EnsembleView<'_>, lane: usize, tree: &BundledTree<'_>) {
        let mut pending = vec![(0, false)];
        // bound: two iterations per node.
        while let Some((node, is_done)) = pending.pop() {
            if tree.tree.is_leaf(node) {
                continue;
            }
            if !is_done {
                let [left, right] = [tree.tree.left[node], tree.tree.right[node]];
                pending.extend([
                    (node, true),
                    (right as usize, false),
                    (left as usize, false),
                ]);
                continue;
            }
            let column = view.binned.columns[tree.split(view, node).0];
            let entry = ScatterEntry {
                slot: tree.bundle_nodes[node] * LANES + lane,
                split_feature: BinColumn::from_words(column).split_feature as usize,
            };
            self.scatter.push(entry.word());
        }
    }
}

/// Sort key of trees: neighbors have the same number of quadrature points and similar shapes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    points: usize,
    splits: u32,
    /// Number of splits below the second child of the root.
    second_splits: u32,
    tree: usize,
}

/// A tree in a lane of a bundle.
struct BundledTree<'a> {
    tree: TreeView<'a>,
    index: usize,
    /// Number of splits in the subtree of each node.
    sizes: Vec<u32>,
    parents: Vec<u32>,
    /// For each split node, its index among the splits.
    split_numbers: Vec<u32>,
    /// For each split node, its bundle node.
    bundle_nodes: Vec<usize>,
}

impl<'a> BundledTree<'a> {
    fn new(view: &EnsembleView<'a>, index: usize) -> Self {
        let tree = view.tree(index);
        let nodes = tree.nodes();
        let (mut sizes, mut parents) = (vec![0; nodes], vec![NONE; nodes]);
        for node in (0..nodes).rev().filter(|&node| !tree.is_leaf(node)) {
            let children = [tree.left[node] as usize, tree.right[node] as usize];
            sizes[node] = 1 + sizes[children[0]] + sizes[children[1]];
            for child in children {
                parents[child] = node as u32;
            }
        }
        let mut count = 0;
        let split_numbers = (0..nodes).map(|node| {
            count += u32::from(!tree.is_leaf(node));
            count.saturating_sub(1)
        });
        Self {
            split_numbers: split_numbers.collect(),
            bundle_nodes: vec![0; nodes],
            tree,
            index,
            sizes,
            parents,
        }
    }

    fn splits(&self) -> u32 {
        self.sizes[0]
    }

    fn points(&self) -> usize {
        self.tree.quadrature_points()
    }

    fn sort_key(&self) -> SortKey {
        let ([_, second], _) = self.children(0);
        SortKey {
            points: self.points(),
            splits: self.splits(),
            second_splits: self.sizes[second],
            tree: self.index,
        }
    }

    /// Returns the children of a split, the larger one first, and whether that is the right one.
    fn children(&self, node: usize) -> ([usize; 2], bool) {
        let [left, right] = [
            self.tree.left[node] as usize,
            self.tree.right[node] as usize,
        ];
        match self.sizes[right] > self.sizes[left] {
            true => ([right, left], true),
            false => ([left, right], false),
        }
    }

    /// Returns the column of a split in the binned form, and its byte there.
    fn split(&self, view: &EnsembleView<'_>, node: usize) -> (usize, usize) {
        let splits = &view.binned.splits[view.splits_of(self.index)];
        let [column, byte, ..] = splits[self.split_numbers[node] as usize];
        (usize::from(column), usize::from(byte))
    }
}
