//! The form of a model for explaining one row: eight trees side by side in the lanes of vectors.
//!
//! **Problem.** One row gives a vector nothing to do but the quadrature points, of which there are
//! few. Trees are many, but each has a shape of its own.
//!
//! **Approach.** Eight trees of similar size make a *lot*. The children of each split are put into
//! the order of their sizes, larger first, so that shapes look alike, and the trees are laid over
//! each other: a *place* of a lot is where at least one tree has a split. A lot is gone through as
//! one tree is, in pre-order; what each tree has there lies in its lane, one vector after the other
//! in the order in which it is needed. A tree that has a leaf where others go on has the leaf's
//! value blended in when they come back up.
//!
//! Trees of a lot have the same number of quadrature points. The order of the lots, and of the
//! trees in them, is the order in which contributions are summed up, for many rows at once, too.
//!
//! **Limits.** As for `blocks`; trees of one leaf are in no lot.

use crate::image::{Image, LOT_COUNTS};
use crate::ranks::{Asked, Column, key_of_cut};
use crate::shap::paths::NONE;
use crate::view::{EnsembleView, TreeView, flag};

/// Trees of a lot.
pub(crate) const ABREAST: usize = 8;

/// A lot: points, and where its places, numbers, repeats and adds begin; depth. The last one only
/// says where those of the one before end.
pub(crate) type Lot = [u32; 6];

/// A place: [`kind`], lanes with a leaf as first and as second child, lanes whose feature was asked
/// before, lanes whose right child is the first.
pub(crate) type Shape = [u8; 8];

/// How many children of a place are places.
pub(crate) mod kind {
    pub(crate) const TWIN: u8 = 0;
    pub(crate) const FIRST: u8 = 1;
    pub(crate) const BOTH: u8 = 2;
}

/// An earlier edge of a split's feature: place, place above the edge, lane, whether the edge goes
/// to the first child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub(crate) place: usize,
    pub(crate) above: usize,
    pub(crate) lane: usize,
    pub(crate) is_first: bool,
}

/// Bits of a place's number: eight trees of 255 splits.
const PLACE_BITS: u32 = 11;

impl Repeat {
    pub(crate) fn of_word(word: u32) -> Self {
        let mask = (1 << PLACE_BITS) - 1;
        Self {
            place: (word & mask) as usize,
            above: (word >> PLACE_BITS & mask) as usize,
            lane: (word >> (2 * PLACE_BITS) & 7) as usize,
            is_first: word >> (2 * PLACE_BITS + 3) & 1 == 1,
        }
    }

    fn word(self) -> u32 {
        let first = u32::from(self.is_first) << (2 * PLACE_BITS + 3);
        let lane = (self.lane as u32) << (2 * PLACE_BITS);
        first | lane | (self.above as u32) << PLACE_BITS | self.place as u32
    }
}

/// The lots, borrowed from an image. All empty where the model has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LotsView<'a> {
    pub(crate) lots: &'a [Lot],
    /// Of each lot: the trees in its lanes; [`NONE`]: an empty lane.
    pub(crate) trees: &'a [[u32; ABREAST]],
    pub(crate) shapes: &'a [Shape],
    /// Of each place and lane: the key that goes right, and its place among the keys of a row.
    pub(crate) asks: &'a [[u32; 2]],
    /// [`Repeat`]s.
    pub(crate) repeats: &'a [u32],
    /// Of each lane's splits, in post-order: place and lane (upper 16 bits), asked feature.
    pub(crate) adds: &'a [u32],
    /// Of each place, vectors: see [`vectors`].
    pub(crate) numbers: &'a [f64],
}

/// How many vectors a place has. With children: two shares, values of leaves as first child and as
/// second child where there are any. Without: expected value, both leaves. Then, where a feature
/// was asked before: the product of its shares, and 1 / f at each point.
#[inline(always)]
pub(crate) fn vectors(shape: Shape, points: usize) -> usize {
    let [kind, first, second, repeated, ..] = shape;
    let own = match kind {
        kind::TWIN => 3,
        _ => 2 + usize::from(first != 0) + usize::from(second != 0),
    };
    own + if repeated == 0 { 0 } else { 1 + points }
}

/// The arrays of the form.
#[derive(Debug, Default)]
pub(crate) struct Lots {
    pub(crate) lots: Vec<Lot>,
    pub(crate) trees: Vec<[u32; ABREAST]>,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) asks: Vec<[u32; 2]>,
    pub(crate) repeats: Vec<u32>,
    pub(crate) adds: Vec<u32>,
    pub(crate) numbers: Vec<f64>,
}

/// A tree in a lane.
struct Lane<'a> {
    tree: TreeView<'a>,
    index: usize,
    /// Of each node: the splits from it downwards.
    sizes: Vec<u32>,
    parents: Vec<u32>,
    /// Of each node that is a split: its number among them.
    numbers: Vec<u32>,
    /// Of each split's node: its place.
    places: Vec<u32>,
}

impl<'a> Lane<'a> {
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
        let numbers = (0..nodes).map(|node| {
            count += u32::from(!tree.is_leaf(node));
            count.saturating_sub(1)
        });
        Self {
            numbers: numbers.collect(),
            places: vec![0; nodes],
            tree,
            index,
            sizes,
            parents,
        }
    }

    /// The children of a split, larger first, and whether that is the right one.
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
}

/// The nodes of the lanes at a place; `None`: the tree has no split there.
type Nodes = [Option<usize>; ABREAST];

impl Lots {
    /// The lengths of the arrays, in the order of the image.
    pub(crate) fn counts(&self) -> [u64; LOT_COUNTS] {
        [
            self.lots.len(),
            self.trees.len(),
            self.shapes.len(),
            self.asks.len(),
            self.repeats.len(),
            self.adds.len(),
            self.numbers.len(),
        ]
        .map(|count| count as u64)
    }

    /// Appends the arrays to an image.
    pub(crate) fn push_to(&self, image: &mut Image) {
        image.push(&self.lots);
        image.push(&self.trees);
        image.push(&self.shapes);
        image.push(&self.asks);
        image.push(&self.repeats);
        image.push(&self.adds);
        image.push(&self.numbers);
    }

    /// The form of a model that can be explained in blocks.
    pub(crate) fn build(view: &EnsembleView<'_>) -> Self {
        let mut form = Self::default();
        // Keys alone are kept: the lanes of fifty thousand small trees take more than their image.
        let key = |index: usize| {
            let lane = Lane::new(view, index);
            (lane.sizes[0] > 0).then(|| {
                let second = lane.children(0).0[1];
                (
                    points_of(&lane.tree),
                    lane.sizes[0],
                    lane.sizes[second],
                    index,
                )
            })
        };
        let mut keys: Vec<(usize, u32, u32, usize)> = (0..view.trees()).filter_map(key).collect();
        keys.sort_unstable();
        let sets = set_places(view);
        for keys in keys.chunk_by(|a, b| a.0 == b.0) {
            for keys in keys.chunks(ABREAST) {
                let lanes = keys.iter().map(|&(.., index)| Lane::new(view, index));
                form.push_lot(view, &sets, &mut lanes.collect::<Vec<_>>());
            }
        }
        form.push_start(0, 0);
        form
    }

    fn push_start(&mut self, points: usize, depth: usize) {
        let starts = [
            self.shapes.len(),
            self.numbers.len(),
            self.repeats.len(),
            self.adds.len(),
        ];
        let [shapes, numbers, repeats, adds] = starts.map(|start| start as u32);
        let lot = [points as u32, shapes, numbers, repeats, adds, depth as u32];
        self.lots.push(lot);
    }

    fn push_lot(&mut self, view: &EnsembleView<'_>, sets: &[u32], lanes: &mut [Lane<'_>]) {
        let Some(first) = lanes.first() else { return };
        let points = points_of(&first.tree);
        let lot = self.lots.len();
        self.push_start(points, 0);
        self.trees.push(std::array::from_fn(|lane| {
            lanes.get(lane).map_or(NONE, |lane| lane.index as u32)
        }));
        let rule = super::quadrature::rule(points);
        let start = self.shapes.len();
        let mut open: Vec<(Nodes, usize)> = vec![(
            std::array::from_fn(|lane| (lane < lanes.len()).then_some(0)),
            1,
        )];
        let mut deepest = 0;
        // bound: every turn takes a split of some tree.
        while let Some((nodes, depth)) = open.pop() {
            deepest = deepest.max(depth);
            let place = self.shapes.len() - start;
            for (lane, node) in lanes.iter_mut().zip(nodes) {
                if let Some(node) = node {
                    lane.places[node] = place as u32;
                }
            }
            let below = self.push_place(lanes, nodes, &rule);
            for nodes in below.into_iter().rev() {
                if nodes.iter().any(Option::is_some) {
                    open.push((nodes, depth + 1));
                }
            }
            self.push_asks(view, sets, (lanes, nodes));
            self.push_repeats(lanes, nodes, place);
        }
        self.lots[lot][5] = deepest as u32;
        for (number, lane) in lanes.iter().enumerate() {
            self.push_adds(view, number, lane);
        }
    }

    /// Appends a place and its numbers; returns the nodes of its children.
    fn push_place(&mut self, lanes: &[Lane<'_>], nodes: Nodes, rule: &[(f64, f64)]) -> [Nodes; 2] {
        let mut below = [[None; ABREAST]; 2];
        let mut shape: Shape = [0; 8];
        let (mut shares, mut leaves) = ([[0.0; ABREAST]; 2], [[0.0; ABREAST]; 2]);
        let mut products = [1.0; ABREAST];
        for (number, (lane, node)) in lanes.iter().zip(nodes).enumerate() {
            let Some(node) = node else { continue };
            let tree = &lane.tree;
            let (children, is_flipped) = lane.children(node);
            shape[4] |= u8::from(is_flipped) << number;
            shape[3] |= u8::from(tree.previous[node] != NONE) << number;
            products[number] = tree.merged[node];
            for (side, child) in children.into_iter().enumerate() {
                shares[side][number] = tree.share[child];
                if tree.is_leaf(child) {
                    shape[1 + side] |= 1 << number;
                    leaves[side][number] = tree.value[child];
                } else {
                    below[side][number] = Some(child);
                }
            }
        }
        let count = below.map(|nodes| u8::from(nodes.iter().any(Option::is_some)));
        shape[0] = count[0] + count[1];
        if shape[0] == kind::TWIN {
            let expected: [f64; ABREAST] = std::array::from_fn(|lane| {
                shares[0][lane] * leaves[0][lane] + shares[1][lane] * leaves[1][lane]
            });
            self.numbers.extend(expected);
            self.numbers.extend(leaves.as_flattened());
        } else {
            self.numbers.extend(shares.as_flattened());
            for (side, leaves) in leaves.iter().enumerate() {
                if shape[1 + side] != 0 {
                    self.numbers.extend(leaves);
                }
            }
        }
        if shape[3] != 0 {
            self.numbers.extend(products);
            for &(t, _) in rule {
                let factor = |lane: usize| match shape[3] >> lane & 1 {
                    0 => 1.0,
                    _ => 1.0 / (products[lane] * (1.0 - t) + t),
                };
                self.numbers.extend((0..ABREAST).map(factor));
            }
        }
        self.shapes.push(shape);
        below
    }

    fn push_asks(
        &mut self,
        view: &EnsembleView<'_>,
        sets: &[u32],
        (lanes, nodes): (&[Lane<'_>], Nodes),
    ) {
        for (number, node) in nodes.into_iter().enumerate() {
            let ask = lanes.get(number).zip(node).map(|(lane, node)| {
                let splits = &view.ranks.splits[view.splits_of(lane.index)];
                let [column, byte, ..] = splits[lane.numbers[node] as usize];
                ask_of(view, sets, usize::from(column), usize::from(byte))
            });
            self.asks.push(ask.unwrap_or([0, 0]));
        }
    }

    fn push_repeats(&mut self, lanes: &[Lane<'_>], nodes: Nodes, place: usize) {
        for (number, (lane, node)) in lanes.iter().zip(nodes).enumerate() {
            let Some(previous) = node.map(|node| lane.tree.previous[node]) else {
                continue;
            };
            if previous == NONE {
                continue;
            }
            let above = lane.parents[previous as usize] as usize;
            let repeat = Repeat {
                place,
                above: lane.places[above] as usize,
                lane: number,
                is_first: lane.children(above).0[0] == previous as usize,
            };
            self.repeats.push(repeat.word());
        }
    }

    /// Appends the splits of a tree, each behind those below it.
    fn push_adds(&mut self, view: &EnsembleView<'_>, number: usize, lane: &Lane<'_>) {
        let splits = &view.ranks.splits[view.splits_of(lane.index)];
        let mut open = vec![(0, false)];
        // bound: two turns for each node.
        while let Some((node, is_done)) = open.pop() {
            if lane.tree.is_leaf(node) {
                continue;
            }
            if !is_done {
                let [left, right] = [lane.tree.left[node], lane.tree.right[node]];
                open.extend([
                    (node, true),
                    (right as usize, false),
                    (left as usize, false),
                ]);
                continue;
            }
            let [column, ..] = splits[lane.numbers[node] as usize];
            let asked = view.ranks.columns[usize::from(column)][0];
            let slot = lane.places[node] * ABREAST as u32 + number as u32;
            self.adds.push(slot << 16 | asked);
        }
    }
}

/// Quadrature points of a tree.
pub(crate) fn points_of(tree: &TreeView<'_>) -> usize {
    tree.path_features.min(tree.depth).div_ceil(2)
}

/// Of each column of categories: where its key is.
fn set_places(view: &EnsembleView<'_>) -> Vec<u32> {
    let mut next = view.keys().sets() as u32;
    let columns = view.ranks.columns.iter().map(|&words| {
        let is_set = Column::of_words(words).has(flag::CATEGORICAL);
        let place = next;
        next += u32::from(is_set);
        place
    });
    columns.collect()
}

/// The key that goes right at a split, and its place among those of a row. Nobody asks it of a
/// model without keys.
fn ask_of(view: &EnsembleView<'_>, sets: &[u32], place: usize, byte: usize) -> [u32; 2] {
    if view.ranks.steps.is_empty() {
        return [0, 0];
    }
    let column = Column::of_words(view.ranks.columns[place]);
    if column.has(flag::CATEGORICAL) {
        return [1, sets[place]];
    }
    let asked = Asked::of_words(view.ranks.asked[column.asked as usize]);
    let cut = view.ranks.cuts[asked.cuts + column.start as usize + byte];
    let planes = view.ranks.planes;
    let plane = planes.partition_point(|&plane| plane < column.plane());
    let place = view
        .keys()
        .place(plane, column.asked as usize, asked.feature);
    [key_of_cut(cut), place as u32]
}
