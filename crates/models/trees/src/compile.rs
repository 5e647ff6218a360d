//! Compiles a model into an [`Image`].
//!
//! The row-independent part of SHAP (cover shares, earlier edges of a feature, expected values)
//! is computed here once instead of in each process.

mod binned;
mod bundles;
mod key_tests;
pub(crate) mod paths;

use albacore_formats::{Model, Tree};

use crate::compile::binned::BinnedForm;
use crate::compile::bundles::Bundles;
use crate::compile::paths::{PathArrays, expected_value};
use crate::layout::binned::BinnedView;
use crate::layout::bundles::BundlesView;
use crate::layout::ensemble::{ALL_GROUPS, EnsembleView, flag};
use crate::layout::image::{Image, ImageHeader, TUNING_WORDS, library_code, property};
use crate::transform;

impl Image {
    /// Compiles a model into a block of bytes that [`Predictor::open`](crate::Predictor::open)
    /// reads in place.
    #[must_use]
    pub fn compile(model: &Model) -> Self {
        let parts = model.parts();
        let mut arrays = ModelArrays {
            base: parts.base.clone(),
            iteration_starts: parts.iteration_starts.clone(),
            node_starts: vec![0],
            set_starts: vec![0],
            ..ModelArrays::default()
        };
        arrays.reserve(parts.trees.iter().map(|tree| tree.nodes().len()).sum());
        for tree in &parts.trees {
            arrays.push_tree(tree, parts.groups);
        }
        let mut properties = 0;
        for (is_set, bit) in [
            (parts.is_averaged, property::AVERAGED),
            (model.has_vector_leaves(), property::VECTOR_LEAVES),
            (
                parts.trees.iter().all(|tree| tree.has_covers()),
                property::COVERS,
            ),
        ] {
            properties |= if is_set { bit } else { 0 };
        }
        let view = arrays.view(parts.features, parts.groups);
        let binned = BinnedForm::build(&view, model.library());
        let binned_view = EnsembleView {
            binned: binned.view(),
            ..view
        };
        let bundles = match binned_view.has_vector_shap() {
            true => Bundles::build(&binned_view),
            false => Bundles::default(),
        };
        let (transform, parameter) = transform::encode(parts.transform);
        let mut image = Image::new();
        arrays.push_to(&mut image);
        let header = ImageHeader {
            library: library_code(model.library()),
            properties,
            transform: u64::from(transform),
            parameter: parameter.to_bits(),
            features: parts.features as u64,
            groups: parts.groups as u64,
            trees: parts.trees.len() as u64,
            nodes: arrays.flags.len() as u64,
            iterations: model.iterations() as u64,
            leaf_vectors: arrays.leaf_vectors.len() as u64,
            sets: arrays.set_starts.len() as u64 - 1,
            set_words: arrays.set_words.len() as u64,
            binned: binned.push_to(&mut image),
            bundles: bundles.push_to(&mut image),
            tuning: [0; TUNING_WORDS],
        };
        image.seal(header);
        image
    }
}

/// Arrays of an image, except those of the binned form and the bundles.
#[derive(Default)]
struct ModelArrays {
    base: Vec<f64>,
    expected: Vec<f64>,
    value: Vec<f64>,
    share: Vec<f64>,
    earlier_share: Vec<f64>,
    leaf_vectors: Vec<f64>,
    iteration_starts: Vec<u32>,
    node_starts: Vec<u32>,
    depths: Vec<u32>,
    path_features: Vec<u32>,
    tree_groups: Vec<u32>,
    left: Vec<u32>,
    right: Vec<u32>,
    feature: Vec<u32>,
    label: Vec<u32>,
    earlier_edge: Vec<u32>,
    set_starts: Vec<u32>,
    set_word_indices: Vec<u32>,
    set_words: Vec<u32>,
    flags: Vec<u8>,
}

impl ModelArrays {
    /// Reserves capacity for all nodes: a growing vector temporarily uses up to three times its
    /// memory while it is copied.
    fn reserve(&mut self, nodes: usize) {
        for array in [&mut self.value, &mut self.share, &mut self.earlier_share] {
            array.reserve_exact(nodes);
        }
        for array in [
            &mut self.left,
            &mut self.right,
            &mut self.feature,
            &mut self.label,
            &mut self.earlier_edge,
        ] {
            array.reserve_exact(nodes);
        }
        self.flags.reserve_exact(nodes);
    }

    fn push_tree(&mut self, tree: &Tree, groups: usize) {
        let vectors_before = (self.leaf_vectors.len() / groups) as u32;
        let sets_before = self.set_starts.len() - 1;
        let words_before = self.set_words.len() as u32;
        for node in tree.nodes() {
            let is_leaf = node.flags & flag::LEAF != 0;
            let is_vector_leaf = is_leaf && tree.group().is_none();
            let is_set = node.flags & flag::CATEGORICAL != 0;
            self.left.push(match is_vector_leaf {
                true => vectors_before + node.value as u32,
                false => node.left,
            });
            self.right.push(node.right);
            self.feature.push(node.feature);
            self.label.push(node.label);
            self.flags.push(node.flags);
            self.value.push(match (is_vector_leaf, is_set) {
                (true, _) => 0.0,
                (_, true) => node.value + sets_before as f64,
                _ => node.value,
            });
        }
        self.leaf_vectors.extend(tree.leaf_vectors());
        self.set_starts
            .extend(tree.sets().ends().iter().map(|end| words_before + end));
        for &(index, bits) in tree.sets().words() {
            self.set_word_indices.push(index);
            self.set_words.push(bits);
        }
        self.node_starts.push(self.flags.len() as u32);
        self.depths.push(tree.depth());
        self.tree_groups.push(tree.group().unwrap_or(ALL_GROUPS));
        self.push_paths(tree, groups);
    }

    /// Appends the row-independent part of the tree's SHAP values.
    fn push_paths(&mut self, tree: &Tree, groups: usize) {
        let paths = PathArrays::build(tree.nodes());
        let outputs = if tree.group().is_none() { groups } else { 1 };
        for output in 0..outputs {
            self.expected
                .push(expected_value(tree.nodes(), &paths.share, |leaf| {
                    let value = tree.nodes()[leaf].value;
                    match tree.group() {
                        Some(_) => value,
                        None => tree.leaf_vectors()[value as usize * groups + output],
                    }
                }));
        }
        self.share.extend(paths.share);
        self.earlier_share.extend(paths.earlier_share);
        self.earlier_edge.extend(paths.earlier_edge);
        self.path_features.push(paths.path_features);
    }

    /// Returns a view of the model without binned form and bundles.
    fn view(&self, features: usize, groups: usize) -> EnsembleView<'_> {
        EnsembleView {
            features,
            groups,
            is_averaged: false,
            base: &self.base,
            iteration_starts: &self.iteration_starts,
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
            label: &self.label,
            share: &self.share,
            earlier_share: &self.earlier_share,
            earlier_edge: &self.earlier_edge,
            leaf_vectors: &self.leaf_vectors,
            set_starts: &self.set_starts,
            set_word_indices: &self.set_word_indices,
            set_words: &self.set_words,
            binned: BinnedView::default(),
            bundles: BundlesView::default(),
        }
    }

    fn push_to(&self, image: &mut Image) {
        for array in [
            &self.base,
            &self.expected,
            &self.value,
            &self.share,
            &self.earlier_share,
            &self.leaf_vectors,
        ] {
            image.push(array);
        }
        for array in [
            &self.iteration_starts,
            &self.node_starts,
            &self.depths,
            &self.path_features,
            &self.tree_groups,
            &self.left,
            &self.right,
            &self.feature,
            &self.label,
            &self.earlier_edge,
            &self.set_starts,
            &self.set_word_indices,
            &self.set_words,
        ] {
            image.push(array);
        }
        image.push(&self.flags);
    }
}
