//! The engine compared with Shapley's definition, summed over all subsets, on random trees.

use albacore_formats::TreeNode;
use proptest::prelude::*;

use super::ShapScratch;
use super::scalar::{contribs, groups_of, interactions};
use crate::compile::paths::{PathArrays, expected_value};
use crate::layout::binned::BinnedView;
use crate::layout::bundles::BundlesView;
use crate::layout::ensemble::{ALL_GROUPS, EnsembleView, TreeView, flag};
use crate::rows::flushed;

/// A random ensemble; [`Ensemble::view`] returns a view like that of an opened image.
#[derive(Clone, Debug, Default)]
struct Ensemble {
    features: usize,
    groups: usize,
    node_starts: Vec<u32>,
    depths: Vec<u32>,
    path_features: Vec<u32>,
    tree_groups: Vec<u32>,
    expected: Vec<f64>,
    left: Vec<u32>,
    right: Vec<u32>,
    feature: Vec<u32>,
    flags: Vec<u8>,
    value: Vec<f64>,
    cover: Vec<f64>,
    share: Vec<f64>,
    earlier_share: Vec<f64>,
    earlier_edge: Vec<u32>,
    leaf_vectors: Vec<f64>,
}

/// One random node: its test and the division of its cover, used if it becomes a split.
#[derive(Clone, Debug)]
struct Draw {
    feature: u32,
    threshold: f64,
    default_left: bool,
    left_part: f64,
    splits: bool,
    values: [f64; 2],
}

fn draw(features: usize) -> impl Strategy<Value = Draw> {
    let part = prop_oneof![8 => 0.01..0.99f64, 1 => Just(0.0), 1 => Just(1.0)];
    let value = [-2.0..2.0f64, -2.0..2.0f64];
    (
        0..features as u32,
        -1.0..1.0f64,
        any::<bool>(),
        part,
        prop::bool::weighted(0.85),
        value,
    )
        .prop_map(
            |(feature, threshold, default_left, left_part, splits, values)| Draw {
                feature,
                threshold,
                default_left,
                left_part,
                splits,
                values,
            },
        )
}

impl Ensemble {
    fn new(features: usize, groups: usize) -> Self {
        Self {
            features,
            groups,
            node_starts: vec![0],
            ..Self::default()
        }
    }

    /// Grows a tree breadth-first from random nodes; nodes without a draw become leaves.
    fn grow(&mut self, draws: &[Draw], group: u32, cover: f64) {
        let start = self.left.len();
        let mut level = vec![0_u32];
        self.push(cover);
        let mut draws = draws.iter();
        for (node, draw) in (0..).zip(draws.by_ref()) {
            let at = start + node;
            if at == self.left.len() {
                break;
            }
            self.value[at] = draw.values[0];
            if group == ALL_GROUPS {
                self.left[at] = (self.leaf_vectors.len() / self.groups) as u32;
                self.leaf_vectors
                    .extend((0..self.groups).map(|k| draw.values[k % 2] + k as f64));
            }
            if !draw.splits && node > 0 {
                continue;
            }
            let child = (self.left.len() - start) as u32;
            (self.left[at], self.right[at]) = (child, child + 1);
            self.feature[at] = draw.feature;
            self.flags[at] = flag::MISSING_NAN
                | if draw.default_left {
                    flag::DEFAULT_LEFT
                } else {
                    0
                };
            self.value[at] = draw.threshold;
            let parts = [draw.left_part, 1.0 - draw.left_part];
            for part in parts {
                level.push(level[node] + 1);
                self.push(self.cover[at] * part);
            }
        }
        self.node_starts.push(self.left.len() as u32);
        self.depths.push(level.into_iter().max().unwrap_or(0));
        self.tree_groups.push(group);
        self.prepare(start);
    }

    /// Computes the arrays of the compiled model for the tree whose nodes begin at `start`.
    fn prepare(&mut self, start: usize) {
        let node = |at: usize| TreeNode {
            label: 0,
            flags: self.flags[at],
            feature: self.feature[at],
            left: self.left[at],
            right: self.right[at],
            value: self.value[at],
            cover: self.cover[at],
        };
        let nodes: Vec<TreeNode> = (start..self.left.len()).map(node).collect();
        let paths = PathArrays::build(&nodes);
        let is_vector = self.tree_groups.last() == Some(&ALL_GROUPS);
        for output in 0..if is_vector { self.groups } else { 1 } {
            let leaf = |node: usize| match is_vector {
                true => self.leaf_vectors[self.left[start + node] as usize * self.groups + output],
                false => self.value[start + node],
            };
            self.expected
                .push(expected_value(&nodes, &paths.share, leaf));
        }
        self.path_features.push(paths.path_features);
        self.share.extend(paths.share);
        self.earlier_share.extend(paths.earlier_share);
        self.earlier_edge.extend(paths.earlier_edge);
    }

    fn push(&mut self, cover: f64) {
        self.left.push(0);
        self.right.push(0);
        self.feature.push(0);
        self.flags.push(flag::LEAF);
        self.value.push(0.25);
        self.cover.push(cover);
    }

    fn view(&self) -> EnsembleView<'_> {
        EnsembleView {
            binned: BinnedView::default(),
            bundles: BundlesView::default(),
            features: self.features,
            groups: self.groups,
            base: &[],
            is_averaged: false,
            iteration_starts: &[],
            node_starts: &self.node_starts,
            depths: &self.depths,
            path_features: &self.path_features,
            tree_groups: &self.tree_groups,
            expected: &self.expected,
            left: &self.left,
            right: &self.right,
            feature: &self.feature,
            flags: &self.flags,
            value: &self.value,
            label: &self.feature,
            share: &self.share,
            earlier_share: &self.earlier_share,
            earlier_edge: &self.earlier_edge,
            leaf_vectors: &self.leaf_vectors,
            set_starts: &[],
            set_word_indices: &[],
            set_words: &[],
        }
    }

    fn margin(&self, group: usize, row: &[f64]) -> f64 {
        let view = self.view();
        (0..view.trees())
            .map(|index| view.tree(index))
            .filter_map(|tree| {
                let output = groups_of(&view, &tree).position(|g| g == group)?;
                Some(tree.leaf_values(tree.leaf_of(|feature| flushed(row[feature])))[output])
            })
            .sum()
    }

    fn contribs(&self, row: &[f64]) -> Vec<f64> {
        let mut out = vec![f64::NAN; self.groups * (self.features + 1)];
        let view = self.view();
        contribs(
            &view,
            0..view.trees(),
            row,
            &mut out,
            &mut ShapScratch::default(),
        );
        out
    }

    fn interactions(&self, row: &[f64]) -> Vec<f64> {
        let cells = (self.features + 1).pow(2);
        let mut out = vec![f64::NAN; self.groups * cells];
        let (view, scratch) = (self.view(), &mut ShapScratch::default());
        for (group, out) in out.chunks_exact_mut(cells).enumerate() {
            interactions(&view, 0..view.trees(), row, group, out, scratch);
        }
        out
    }

    /// Returns the value of a coalition in one group: the sum of all trees, without the base score.
    fn coalition(&self, group: usize, row: &[f64], members: u32) -> f64 {
        let view = self.view();
        (0..view.trees())
            .filter_map(|index| {
                let tree = view.tree(index);
                let output = groups_of(&view, &tree).position(|g| g == group)?;
                let cover = &self.cover[self.node_starts[index] as usize..];
                Some(
                    Game {
                        tree,
                        cover,
                        output,
                        row,
                    }
                    .value(0, members),
                )
            })
            .sum()
    }
}

/// The game of path-dependent SHAP: splits on members follow the row, other splits take both
/// branches, weighted by cover.
struct Game<'a> {
    tree: TreeView<'a>,
    cover: &'a [f64],
    output: usize,
    row: &'a [f64],
}

impl Game<'_> {
    fn value(&self, node: usize, members: u32) -> f64 {
        let tree = &self.tree;
        if tree.is_leaf(node) {
            return tree.leaf_values(node)[self.output];
        }
        let feature = tree.feature[node] as usize;
        let children = [tree.left[node] as usize, tree.right[node] as usize];
        if members >> feature & 1 == 1 {
            let goes_left = tree.goes_left(node, self.row[feature]);
            return self.value(children[usize::from(!goes_left)], members);
        }
        let mut sum = 0.0;
        for child in children {
            let cover = self.cover[node];
            let share = if cover > 0.0 {
                self.cover[child] / cover
            } else {
                0.5
            };
            sum += share * self.value(child, members);
        }
        sum
    }
}

/// 1 / (n choose k) / (n - k): Shapley's weight of a coalition of k among n - 1 other players.
fn weight(n: u32, k: u32) -> f64 {
    let choose: f64 = (1..=k)
        .map(|i| f64::from(n - k + i) / f64::from(i))
        .product();
    1.0 / (choose * f64::from(n - k))
}

fn shapley(features: usize, value: impl Fn(u32) -> f64) -> Vec<f64> {
    let values: Vec<f64> = (0..1_u32 << features).map(value).collect();
    let gain = |i: usize, s: u32| values[(s | 1 << i) as usize] - values[s as usize];
    (0..features)
        .map(|i| {
            (0..1_u32 << features)
                .filter(|s| s >> i & 1 == 0)
                .map(|s| weight(features as u32, s.count_ones()) * gain(i, s))
                .sum()
        })
        .collect()
}

/// Half of Shapley's interaction index of features i and j, so that the matrix sums to the margin.
fn interaction(features: usize, i: usize, j: usize, value: impl Fn(u32) -> f64) -> f64 {
    let (bit_i, bit_j) = (1_u32 << i, 1_u32 << j);
    (0..1_u32 << features)
        .filter(|s| s & (bit_i | bit_j) == 0)
        .map(|s| {
            let together =
                value(s | bit_i | bit_j) - value(s | bit_i) - value(s | bit_j) + value(s);
            0.5 * weight(features as u32 - 1, s.count_ones()) * together
        })
        .sum()
}

/// Generates a model of up to three trees; either all leaves have one value, or all have one per
/// group.
fn ensemble(features: usize) -> impl Strategy<Value = Ensemble> {
    let cover = prop_oneof![9 => 1.0..1000.0f64, 1 => Just(0.0)];
    let tree = (
        prop::collection::vec(draw(features), 1..40),
        any::<prop::sample::Index>(),
        cover,
    );
    let trees = prop::collection::vec(tree, 1..4);
    (1..4_usize, any::<bool>(), trees).prop_map(move |(groups, is_vector, trees)| {
        let mut ensemble = Ensemble::new(features, groups);
        for (draws, group, cover) in trees {
            let group = if is_vector {
                ALL_GROUPS
            } else {
                group.index(groups) as u32
            };
            ensemble.grow(&draws, group, cover);
        }
        ensemble
    })
}

fn row(features: usize) -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![4 => -1.2..1.2f64, 1 => Just(f64::NAN)];
    prop::collection::vec(value, features)
}

fn case() -> impl Strategy<Value = (Ensemble, Vec<f64>)> {
    (1..10_usize).prop_flat_map(|features| (ensemble(features), row(features)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn contributions_are_the_shapley_values_of_the_path_dependent_game((model, row) in case()) {
        let got = model.contribs(&row);
        let columns = model.features + 1;
        for group in 0..model.groups {
            let got = &got[group * columns..][..columns];
            let expect = shapley(model.features, |s| model.coalition(group, &row, s));
            for (i, expect) in expect.iter().enumerate() {
                prop_assert!((got[i] - expect).abs() < 1e-12, "feature {i}: {} {expect}", got[i]);
            }
            prop_assert!((got[model.features] - model.coalition(group, &row, 0)).abs() < 1e-12);
            let sum: f64 = got.iter().sum();
            prop_assert!((sum - model.margin(group, &row)).abs() < 1e-12);
        }
    }

    #[test]
    fn interactions_are_half_the_shapley_interaction_indices((model, row) in case()) {
        let matrix = model.interactions(&row);
        let contribs = model.contribs(&row);
        let (features, columns) = (model.features, model.features + 1);
        for group in 0..model.groups {
            let cell = |i: usize, j: usize| matrix[(group * columns + i) * columns + j];
            let values: Vec<f64> =
                (0..1_u32 << features).map(|s| model.coalition(group, &row, s)).collect();
            for i in 0..columns {
                for j in 0..i {
                    prop_assert_eq!(cell(i, j).to_bits(), cell(j, i).to_bits());
                    let expect = if i == features {
                        0.0
                    } else {
                        interaction(features, i, j, |s| values[s as usize])
                    };
                    prop_assert!((cell(i, j) - expect).abs() < 1e-12, "{i} {j}: {expect}");
                }
                let sum: f64 = (0..columns).map(|j| cell(i, j)).sum();
                prop_assert!((sum - contribs[group * columns + i]).abs() < 1e-12);
            }
        }
    }
}

fn split(feature: u32, left_part: f64) -> Draw {
    let values = [1.0, -1.0];
    Draw {
        feature,
        threshold: 0.0,
        default_left: true,
        left_part,
        splits: true,
        values,
    }
}

#[test]
fn a_tree_of_one_leaf_contributes_only_to_the_bias() {
    let mut model = Ensemble::new(2, 1);
    model.grow(&[], 0, 5.0);
    assert_eq!(model.contribs(&[0.5, f64::NAN]), [0.0, 0.0, 0.25]);
    assert_eq!(model.interactions(&[0.5, f64::NAN])[..8], [0.0; 8]);
    assert_eq!(model.interactions(&[0.5, f64::NAN])[8], 0.25);
}

#[test]
fn a_model_without_features_has_only_a_bias() {
    let mut model = Ensemble::new(0, 1);
    model.grow(&[], 0, 5.0);
    assert_eq!(model.contribs(&[]), [0.25]);
    assert_eq!(model.interactions(&[]), [0.25]);
}

#[test]
fn a_feature_split_repeatedly_has_the_whole_contribution() {
    let mut model = Ensemble::new(3, 1);
    let draws: Vec<Draw> = (0..31)
        .map(|k| split(1, 0.1 + 0.02 * f64::from(k)))
        .collect();
    model.grow(&draws, 0, 100.0);
    for x in [-0.5, 0.5, f64::NAN] {
        let row = [0.0, x, 0.0];
        let got = model.contribs(&row);
        assert_eq!((got[0], got[2]), (0.0, 0.0));
        assert!((got[1] + got[3] - model.margin(0, &row)).abs() < 1e-12);
    }
}

#[test]
fn a_chain_of_hundreds_of_features_sums_to_the_margin() {
    let features = 600;
    let mut model = Ensemble::new(features, 1);
    // Breadth-first; every left child is a leaf, so that the chain follows the right children.
    for (depth, part) in [(20_u32, 0.3), (150, 0.02), (600, 0.004)] {
        let mut draws = vec![split(0, part)];
        for level in 1..depth {
            draws.push(Draw {
                splits: false,
                ..split(0, part)
            });
            draws.push(split(level, part));
        }
        model.grow(&draws, 0, 1e6);
    }
    let row: Vec<f64> = (0..features)
        .map(|i| if i == 577 { -1.0 } else { 1.0 })
        .collect();
    let sum: f64 = model.contribs(&row).iter().sum();
    assert!((sum - model.margin(0, &row)).abs() < 1e-11, "{sum}");
}

#[test]
fn rows_of_a_block_do_not_affect_each_other() {
    let mut model = Ensemble::new(3, 2);
    let draws: Vec<Draw> = (0..12)
        .map(|k| split(k % 3, 0.2 + 0.05 * f64::from(k)))
        .collect();
    model.grow(&draws, 1, 10.0);
    model.grow(&draws, 0, 10.0);
    let rows = [[-1.0, 1.0, f64::NAN], [f64::NAN; 3], [1.0, 1.0, -1.0]];
    let view = model.view();
    let mut block = vec![0.0; 3 * 2 * 4];
    contribs(
        &view,
        0..2,
        &rows.concat(),
        &mut block,
        &mut ShapScratch::default(),
    );
    let alone: Vec<f64> = rows.iter().flat_map(|row| model.contribs(row)).collect();
    assert_eq!(block, alone);
}
