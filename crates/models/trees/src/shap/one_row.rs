//! SHAP values of one row: one bundle of eight trees at a time, one tree per lane of a vector.
//!
//! The formulas are those of `contributions`, the layout of a bundle that of `layout::bundles`. A
//! bundle is processed in two steps:
//!
//! 1. `decide_splits` compares the keys of the row with all splits of the bundle: it computes the
//!    lanes in which the row goes to the first child, and those in which it has followed all
//!    earlier edges of the feature that a node splits on;
//! 2. [`BundleDescent`] visits the nodes in pre-order. On the way down it multiplies the ratios
//!    `f' / f` of the edges (`above`); on the way up it sums the leaves, each times the ratios
//!    between it and the node (`below`). When both children of a node are summed, the contribution
//!    of the node is known.
//!
//! With `PAIRS` the second step also computes the interaction of every node with every node above
//! it, see `interactions`.

use albacore_simd::{Lanes, WithSimd};

use crate::layout::bundles::{
    BundleNode, BundleNodeBytes, BundlesView, EarlierEdge, InnerChildren, LANES,
};
use crate::shap::pair_terms::PairTerms;
use crate::shap::scratch::{NodeFrame, VectorScratch};

/// Processes one row and one bundle; writes the contribution of each node and lane to
/// `VectorScratch::contributions`.
pub(super) struct BundleShap<'a, const PAIRS: bool> {
    pub(super) bundles: &'a BundlesView<'a>,
    pub(super) bundle: usize,
    /// Keys of the row.
    pub(super) keys: &'a [u32],
    /// Abscissas and weights of the quadrature points of the bundle.
    pub(super) rule: &'a [(f64, f64)],
    pub(super) scratch: &'a mut VectorScratch,
}

impl<const PAIRS: bool> WithSimd for BundleShap<'_, PAIRS> {
    #[inline(always)]
    fn with_simd<L: Lanes>(self, lanes: L) {
        match self.rule.len() {
            1 => self.with_points::<L, 1>(lanes),
            2 => self.with_points::<L, 2>(lanes),
            3 => self.with_points::<L, 3>(lanes),
            4 => self.with_points::<L, 4>(lanes),
            5 => self.with_points::<L, 5>(lanes),
            6 => self.with_points::<L, 6>(lanes),
            7 => self.with_points::<L, 7>(lanes),
            8 => self.with_points::<L, 8>(lanes),
            // `open` rejects bundles with other numbers of points.
            _ => {}
        }
    }
}

impl<const PAIRS: bool> BundleShap<'_, PAIRS> {
    #[inline(always)]
    fn with_points<L: Lanes, const N: usize>(self, lanes: L) {
        let Some(rule) = self.rule.first_chunk::<N>() else {
            return;
        };
        let (bundles, scratch) = (self.bundles, self.scratch);
        let (header, next) = bundles.headers_of(self.bundle);
        let nodes = &bundles.nodes[header.nodes..next.nodes];
        let key_tests = &bundles.key_tests[header.nodes * LANES..next.nodes * LANES];
        let earlier_edges = &bundles.earlier_edges[header.earlier_edges..next.earlier_edges];
        decide_splits(nodes, key_tests, earlier_edges, self.keys, scratch);
        scratch.contributions.resize(nodes.len() * LANES, 0.0);
        let frames = (header.depth + 1) * frame_vectors(PAIRS) * N * L::WIDTH;
        if scratch.frames.len() < frames {
            scratch.frames.resize(frames, 0.0);
        }
        if PAIRS {
            scratch.pairs.reserve(nodes.len(), header.depth);
        }
        for first_lane in (0..LANES).step_by(L::WIDTH) {
            let descent = BundleDescent::<L, N, PAIRS> {
                lanes,
                nodes,
                constants: &bundles.constants[header.constants..next.constants],
                first_lane,
                goes_first: &scratch.goes_first,
                on_path: &scratch.on_path,
                one_minus_t: rule.map(|(t, _)| lanes.splat(1.0 - t)),
                t: rule.map(|(t, _)| lanes.splat(t)),
                frames: &mut scratch.frames,
                stack: &mut scratch.node_stack.0,
                contributions: &mut scratch.contributions,
                pairs: &mut scratch.pairs,
            };
            descent.run(rule.map(|(_, weight)| lanes.splat(weight)));
        }
    }
}

/// Computes `goes_first`, the lanes in which the row goes to the first child of a node, and
/// `on_path`, the lanes in which it has followed all earlier edges of the node's feature.
#[inline(always)]
fn decide_splits(
    nodes: &[BundleNodeBytes],
    key_tests: &[[u32; 2]],
    earlier_edges: &[u32],
    keys: &[u32],
    scratch: &mut VectorScratch,
) {
    let VectorScratch {
        goes_first,
        on_path,
        ..
    } = scratch;
    goes_first.clear();
    let (key_tests, _) = key_tests.as_chunks::<LANES>();
    goes_first.extend(nodes.iter().zip(key_tests).map(|(&node, tests)| {
        let mut goes_left = 0;
        for (lane, &[first_right, key]) in tests.iter().enumerate() {
            goes_left |= u8::from(keys[key as usize] < first_right) << lane;
        }
        goes_left ^ BundleNode::from_bytes(node).flipped_lanes
    }));
    on_path.clear();
    on_path.resize(nodes.len(), u8::MAX);
    // In node order: the upper node of an edge is decided before the lower one.
    for edge in earlier_edges
        .iter()
        .map(|&word| EarlierEdge::from_word(word))
    {
        let goes_first = goes_first[edge.upper] >> edge.lane & 1 == 1;
        let was_on_path = on_path[edge.upper] >> edge.lane & 1 == 1;
        let has_left = !was_on_path || goes_first != edge.is_first;
        on_path[edge.node] &= !(u8::from(has_left) << edge.lane);
    }
}

/// Number of vectors that an open node stores per quadrature point.
const fn frame_vectors(has_pairs: bool) -> usize {
    if has_pairs { 3 } else { 2 }
}

/// Frame vector: the product of weight and ratios above the node.
const ABOVE: usize = 0;
/// Frame vector: the sum below the first child.
const FIRST_SUM: usize = 1;
/// Frame vector, only with pairs: the change of g by the edge that is being descended.
const CHANGE: usize = 2;

/// The node being visited.
#[derive(Clone, Copy)]
struct Visit {
    /// Index of the node in the bundle.
    index: usize,
    node: BundleNode,
    /// Start of the node's constants.
    constants: usize,
    /// Number of nodes above it, which is the level of its frame.
    level: usize,
}

/// Factors of a split at each quadrature point: a, b and c of `contributions`.
struct Factors<L: Lanes, const N: usize> {
    a: [L::Vector; N],
    b: [L::Vector; N],
    /// `None`: 1, because the feature is new in all lanes.
    c: Option<[L::Vector; N]>,
    /// 1 / f if the feature is repeated.
    inverse_f: [L::Vector; N],
    /// Lanes in which the row has followed all earlier edges of the feature.
    on_path: u64,
}

struct BundleDescent<'a, L: Lanes, const N: usize, const PAIRS: bool> {
    lanes: L,
    nodes: &'a [BundleNodeBytes],
    constants: &'a [f64],
    /// Lane of the bundle in the first lane of the vectors.
    first_lane: usize,
    goes_first: &'a [u8],
    on_path: &'a [u8],
    one_minus_t: [L::Vector; N],
    t: [L::Vector; N],
    frames: &'a mut [f64],
    stack: &'a mut [NodeFrame],
    contributions: &'a mut [f64],
    pairs: &'a mut PairTerms,
}

impl<L: Lanes, const N: usize, const PAIRS: bool> BundleDescent<'_, L, N, PAIRS> {
    /// Visits all nodes; `weights` are those of the quadrature points.
    #[inline(always)]
    fn run(mut self, weights: [L::Vector; N]) {
        let (mut above, mut level, mut constants) = (weights, 0, 0);
        let mut index = 0;
        // bound: every iteration visits a node.
        while index < self.nodes.len() {
            let visit = self.visit(index, constants, level);
            constants += visit.node.constant_vectors(N) * LANES;
            let factors = self.factors(&visit);
            index += 1;
            if visit.node.inner_children == InnerChildren::Neither {
                let mut below = self.sum_leaf_pair(&visit, &factors, &above);
                self.ascend(&mut below, &mut above, &mut level);
            } else {
                self.descend_to_first(&visit, &factors, &mut above);
                level += 1;
            }
        }
    }

    #[inline(always)]
    fn visit(&self, index: usize, constants: usize, level: usize) -> Visit {
        Visit {
            index,
            node: BundleNode::from_bytes(self.nodes[index]),
            constants,
            level,
        }
    }

    /// Returns the lanes in which the row goes to the first child of a node.
    #[inline(always)]
    fn goes_first(&self, visit: &Visit) -> u64 {
        u64::from(self.goes_first[visit.index] >> self.first_lane)
    }

    /// Returns the part of a lane mask of the bundle that is in the vectors.
    #[inline(always)]
    fn lanes_of(&self, mask: u8) -> u64 {
        u64::from(mask >> self.first_lane)
    }

    /// Loads a vector of the constants of a node, see [`BundleNode::constant_vectors`].
    #[inline(always)]
    fn constant(&self, visit: &Visit, vector: usize) -> L::Vector {
        let at = visit.constants + vector * LANES + self.first_lane;
        self.lanes.load(&self.constants[at..at + L::WIDTH])
    }

    #[inline(always)]
    fn load(&self, level: usize, what: usize, point: usize) -> L::Vector {
        let at = ((level * frame_vectors(PAIRS) + what) * N + point) * L::WIDTH;
        self.lanes.load(&self.frames[at..at + L::WIDTH])
    }

    #[inline(always)]
    fn store(&mut self, level: usize, what: usize, point: usize, x: L::Vector) {
        let at = ((level * frame_vectors(PAIRS) + what) * N + point) * L::WIDTH;
        self.lanes.store(x, &mut self.frames[at..at + L::WIDTH]);
    }

    #[inline(always)]
    fn factors(&self, visit: &Visit) -> Factors<L, N> {
        let lanes = self.lanes;
        let one = lanes.splat(1.0);
        let mut factors = Factors {
            a: self.one_minus_t,
            b: self.t,
            c: None,
            inverse_f: [one; N],
            on_path: u64::MAX,
        };
        if visit.node.repeated_lanes == 0 {
            return factors;
        }
        factors.on_path = self.lanes_of(self.on_path[visit.index]);
        // The last vectors of the node: z, then 1 / f at each point.
        let z_vector = visit.node.constant_vectors(N) - N - 1;
        let z = self.constant(visit, z_vector);
        let mut c = [one; N];
        for (k, c) in c.iter_mut().enumerate() {
            let inverse_f = self.constant(visit, z_vector + 1 + k);
            let scale = lanes.mul(z, inverse_f);
            let a = lanes.mul(scale, self.one_minus_t[k]);
            // If the row has left the path of the feature, the factor does not change: f' / f = s.
            factors.a[k] = lanes.select(factors.on_path, a, one);
            factors.b[k] = lanes.mul(inverse_f, self.t[k]);
            if PAIRS {
                factors.inverse_f[k] = inverse_f;
            }
            *c = lanes.mul(scale, inverse_f);
        }
        factors.c = Some(c);
        factors
    }

    /// Returns f' / f of an edge with this share: s a, plus b in lanes in which the row follows it.
    #[inline(always)]
    fn ratio(
        &self,
        factors: &Factors<L, N>,
        share: L::Vector,
        follows: u64,
        point: usize,
    ) -> L::Vector {
        let ratio = self.lanes.mul(share, factors.a[point]);
        let follows = follows & factors.on_path;
        self.lanes.add_where(follows, ratio, factors.b[point])
    }

    /// Returns the change of g of the node's feature by an edge, see `interactions`.
    #[inline(always)]
    fn change(
        &self,
        factors: &Factors<L, N>,
        share: L::Vector,
        follows: u64,
        ratio: L::Vector,
        point: usize,
    ) -> L::Vector {
        let lanes = self.lanes;
        let (one, zero) = (lanes.splat(1.0), lanes.splat(0.0));
        let mut if_followed = lanes.div(lanes.sub(one, share), ratio);
        let mut if_left = lanes.div(lanes.splat(-1.0), self.one_minus_t[point]);
        if let Some(c) = &factors.c {
            if_followed = lanes.mul(if_followed, c[point]);
            if_left = lanes.mul(if_left, factors.inverse_f[point]);
        }
        let change = lanes.select(follows, if_followed, if_left);
        lanes.select(factors.on_path, change, zero)
    }

    /// Opens the frame of a node with inner children, and multiplies by the ratio of its first
    /// edge.
    #[inline(always)]
    fn descend_to_first(
        &mut self,
        visit: &Visit,
        factors: &Factors<L, N>,
        above: &mut [L::Vector; N],
    ) {
        let share = self.constant(visit, 0);
        let goes_first = self.goes_first(visit);
        for (k, above) in above.iter_mut().enumerate() {
            self.store(visit.level, ABOVE, k, *above);
            let ratio = self.ratio(factors, share, goes_first, k);
            *above = self.lanes.mul(*above, ratio);
            if PAIRS {
                let change = self.change(factors, share, goes_first, ratio, k);
                self.store(visit.level, CHANGE, k, change);
            }
        }
        if let Some(frame) = self.stack.get_mut(visit.level) {
            *frame = NodeFrame {
                index: visit.index as u32,
                constants: visit.constants as u32,
                is_second: false,
            };
        }
    }

    /// Returns the sum below a node whose children are leaves in all lanes.
    #[inline(always)]
    fn sum_leaf_pair(
        &mut self,
        visit: &Visit,
        factors: &Factors<L, N>,
        above: &[L::Vector; N],
    ) -> [L::Vector; N] {
        let expected = self.constant(visit, 0);
        let leaves = [self.constant(visit, 1), self.constant(visit, 2)];
        let followed = self
            .lanes
            .select(self.goes_first(visit), leaves[0], leaves[1]);
        self.contribute(visit, factors, above, &[followed; N], &[expected; N])
    }

    /// Ascends from a child with the sum `below` to a node whose second child is not visited yet;
    /// `above` is then the product above that child.
    #[inline(always)]
    fn ascend(
        &mut self,
        below: &mut [L::Vector; N],
        above: &mut [L::Vector; N],
        level: &mut usize,
    ) {
        // bound: every iteration except the last leaves a level.
        while *level > 0 {
            let NodeFrame {
                index,
                constants,
                is_second,
            } = self.stack[*level - 1];
            let visit = self.visit(index as usize, constants as usize, *level - 1);
            let factors = self.factors(&visit);
            let has_first_leaves = visit.node.first_leaf_lanes != 0;
            if !is_second && has_first_leaves {
                self.blend_leaves(&visit, 2, self.lanes_of(visit.node.first_leaf_lanes), below);
            }
            if !is_second && visit.node.inner_children == InnerChildren::Both {
                self.descend_to_second(&visit, &factors, below, above);
                return;
            }
            let (mut first, mut second) = (*below, *below);
            if visit.node.second_leaf_lanes != 0 {
                let leaf_lanes = match is_second {
                    true => self.lanes_of(visit.node.second_leaf_lanes),
                    false => u64::MAX,
                };
                let vector = 2 + usize::from(has_first_leaves);
                self.blend_leaves(&visit, vector, leaf_lanes, &mut second);
            }
            let shares = [self.constant(&visit, 0), self.constant(&visit, 1)];
            let goes_first = self.goes_first(&visit);
            let (mut expected, mut followed) = (first, first);
            for k in 0..N {
                above[k] = self.load(visit.level, ABOVE, k);
                if is_second {
                    first[k] = self.load(visit.level, FIRST_SUM, k);
                }
                let parts = [
                    self.lanes.mul(shares[0], first[k]),
                    self.lanes.mul(shares[1], second[k]),
                ];
                expected[k] = self.lanes.add(parts[0], parts[1]);
                followed[k] = self.lanes.select(goes_first, first[k], second[k]);
            }
            *below = self.contribute(&visit, &factors, above, &followed, &expected);
            *level -= 1;
        }
    }

    /// Replaces the sums of lanes in which a child is a leaf by the leaf's value, from the given
    /// vector of the node's constants.
    #[inline(always)]
    fn blend_leaves(
        &self,
        visit: &Visit,
        vector: usize,
        leaf_lanes: u64,
        sums: &mut [L::Vector; N],
    ) {
        let leaves = self.constant(visit, vector);
        for sum in sums {
            *sum = self.lanes.select(leaf_lanes, leaves, *sum);
        }
    }

    /// Stores the sum below the first child, and multiplies by the ratio of the second edge.
    #[inline(always)]
    fn descend_to_second(
        &mut self,
        visit: &Visit,
        factors: &Factors<L, N>,
        first_sum: &[L::Vector; N],
        above: &mut [L::Vector; N],
    ) {
        let share = self.constant(visit, 1);
        let goes_second = !self.goes_first(visit);
        for k in 0..N {
            self.store(visit.level, FIRST_SUM, k, first_sum[k]);
            let ratio = self.ratio(factors, share, goes_second, k);
            if PAIRS {
                let change = self.change(factors, share, goes_second, ratio, k);
                self.store(visit.level, CHANGE, k, change);
            }
            above[k] = self.lanes.mul(self.load(visit.level, ABOVE, k), ratio);
        }
        self.stack[visit.level].is_second = true;
    }

    /// Stores the contribution of a node, given the sum below the followed child and the expected
    /// sum of both children; returns the sum below the node.
    #[inline(always)]
    fn contribute(
        &mut self,
        visit: &Visit,
        factors: &Factors<L, N>,
        above: &[L::Vector; N],
        followed: &[L::Vector; N],
        expected: &[L::Vector; N],
    ) -> [L::Vector; N] {
        let lanes = self.lanes;
        let zero = lanes.splat(0.0);
        let (mut sum, mut below) = (zero, *expected);
        let mut integrand = [zero; N];
        for k in 0..N {
            let mut weight = above[k];
            if let Some(c) = &factors.c {
                weight = lanes.mul(weight, c[k]);
            }
            let difference = lanes.sub(followed[k], expected[k]);
            sum = lanes.mul_add(weight, difference, sum);
            if PAIRS {
                let x = lanes.mul(weight, difference);
                integrand[k] = lanes.select(factors.on_path, x, zero);
            }
            let b_followed = lanes.mul(factors.b[k], followed[k]);
            below[k] = lanes.mul_add(expected[k], factors.a[k], b_followed);
            if factors.c.is_some() {
                below[k] = lanes.select(factors.on_path, below[k], expected[k]);
            }
        }
        if factors.c.is_some() {
            sum = lanes.select(factors.on_path, sum, zero);
        }
        if PAIRS {
            self.pair_with_levels_above(visit, &integrand);
        }
        let at = visit.index * LANES + self.first_lane;
        lanes.store(sum, &mut self.contributions[at..at + L::WIDTH]);
        below
    }

    /// Stores the interaction of a node with each node above it.
    #[inline(always)]
    fn pair_with_levels_above(&mut self, visit: &Visit, integrand: &[L::Vector; N]) {
        let lanes = self.lanes;
        for level in 0..visit.level {
            let mut sum = lanes.splat(0.0);
            for (k, &x) in integrand.iter().enumerate() {
                sum = lanes.mul_add(x, self.load(level, CHANGE, k), sum);
            }
            let upper = self.stack[level].index;
            let terms = self.pairs.terms_mut(visit.index, level, upper);
            lanes.store(sum, &mut terms[self.first_lane..self.first_lane + L::WIDTH]);
        }
    }
}
