//! The compiled model: one block of bytes that many processes can map and read in place.
//!
//! A header of [`HEADER_WORDS`] 8-byte words and then arrays, one after the other, each padded to 8
//! bytes; no pointers, so the bytes mean the same wherever they are mapped. How long each array is
//! follows from the counts in the header. The byte order is the machine's, and the magic number
//! tells if it is another's.
//!
//! What SHAP needs of the training data (shares of covers, earlier edges of a feature, expected
//! values) is worked out here, once, and not by each process.

use albacore_formats::{Library, Model, Node, Tree};

use crate::predict::Predictor;
use crate::ranks::form::{RankForm, Source};
use crate::shap::blocks::can_explain;
use crate::shap::lots::{Lots, LotsView};
use crate::shap::paths::{Branch, PathArrays, expected_value};
use crate::transform;
use crate::view::{ALL_GROUPS, EnsembleView, ZERO_MAX, flag};

/// First word of an image: name and version of the layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"albtree\x06");
/// Words of the header.
pub(crate) const HEADER_WORDS: usize = 33 + TUNING_WORDS;
/// The words up to here are not part of the checksum.
pub(crate) const UNCHECKED_WORDS: usize = 3;

/// Lengths of the arrays of the rank form.
pub(crate) const RANK_COUNTS: usize = 11;

/// Words at the end of the header that say what was measured, see `tuning`.
pub(crate) const TUNING_WORDS: usize = 10;

/// Lengths of the arrays of the lots.
pub(crate) const LOT_COUNTS: usize = 7;

/// Bits of the header's word of properties.
pub(crate) mod property {
    pub(crate) const AVERAGED: u64 = 1;
    pub(crate) const VECTOR_LEAVES: u64 = 2;
    pub(crate) const COVERS: u64 = 4;
    /// All that this version knows.
    pub(crate) const ALL: u64 = AVERAGED | VECTOR_LEAVES | COVERS;
}

/// What the header says after magic, length and checksum, in this order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Header {
    pub(crate) library: u64,
    pub(crate) properties: u64,
    pub(crate) transform: u64,
    pub(crate) parameter: u64,
    pub(crate) features: u64,
    pub(crate) groups: u64,
    pub(crate) trees: u64,
    pub(crate) nodes: u64,
    pub(crate) iterations: u64,
    pub(crate) leaf_vectors: u64,
    pub(crate) sets: u64,
    pub(crate) set_words: u64,
    pub(crate) ranks: [u64; RANK_COUNTS],
    pub(crate) lots: [u64; LOT_COUNTS],
    pub(crate) tuning: [u64; TUNING_WORDS],
}

impl Header {
    fn words(self) -> [u64; HEADER_WORDS - UNCHECKED_WORDS] {
        let Self {
            library,
            properties,
            transform,
            parameter,
            features,
            groups,
            trees,
            nodes,
            iterations,
            leaf_vectors,
            sets,
            set_words,
            ranks,
            lots,
            tuning,
        } = self;
        let counts = [
            library,
            properties,
            transform,
            parameter,
            features,
            groups,
            trees,
            nodes,
            iterations,
            leaf_vectors,
            sets,
            set_words,
        ];
        let mut words = [0; HEADER_WORDS - UNCHECKED_WORDS];
        let (first, last) = words.split_at_mut(counts.len());
        first.copy_from_slice(&counts);
        let (middle, last) = last.split_at_mut(RANK_COUNTS);
        middle.copy_from_slice(&ranks);
        let (middle, last) = last.split_at_mut(LOT_COUNTS);
        middle.copy_from_slice(&lots);
        last.copy_from_slice(&tuning);
        words
    }

    /// The header in the words of an image.
    pub(crate) fn of_words(words: &[u64; HEADER_WORDS]) -> Self {
        let &[
            _,
            _,
            _,
            library,
            properties,
            transform,
            parameter,
            features,
            groups,
            trees,
            nodes,
            iterations,
            leaf_vectors,
            sets,
            set_words,
            ref rest @ ..,
        ] = words;
        let mut ranks = [0; RANK_COUNTS];
        let mut lots = [0; LOT_COUNTS];
        let mut tuning = [0; TUNING_WORDS];
        let (of_ranks, rest) = rest.split_at(RANK_COUNTS);
        let (of_lots, of_tuning) = rest.split_at(LOT_COUNTS);
        ranks.copy_from_slice(of_ranks);
        lots.copy_from_slice(of_lots);
        tuning.copy_from_slice(of_tuning);
        Self {
            library,
            properties,
            transform,
            parameter,
            features,
            groups,
            trees,
            nodes,
            iterations,
            leaf_vectors,
            sets,
            set_words,
            ranks,
            lots,
            tuning,
        }
    }
}

/// The number that stands for a library in an image.
pub(crate) fn library_code(library: Library) -> u64 {
    match library {
        Library::Xgboost => 0,
        Library::Lightgbm => 1,
        Library::Sklearn => 2,
    }
}

/// A sum over words that any damaged bit changes.
pub(crate) fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(words.len() as u64, |sum, word| {
        (sum ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    })
}

/// A compiled model in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    words: Vec<u64>,
}

impl Image {
    /// Compiles a model into a block of bytes that [`Predictor::open`](crate::Predictor::open)
    /// reads in place.
    #[must_use]
    pub fn compile(model: &Model) -> Self {
        let parts = model.parts();
        let mut arrays = Arrays {
            base: parts.base.clone(),
            iteration_starts: parts.iteration_starts.clone(),
            node_starts: vec![0],
            set_starts: vec![0],
            ..Arrays::default()
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
        let ranks = arrays.rank_form(model.library(), parts.features);
        let lots = arrays.lots(parts.features, parts.groups, &ranks);
        let (transform, parameter) = transform::encode(parts.transform);
        let header = Header {
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
            ranks: ranks.counts(),
            lots: lots.counts(),
            tuning: [0; TUNING_WORDS],
        };
        arrays.image(header, &ranks, &lots)
    }

    /// Times the kernels on this cpu, as [`Predictor::tuned`] does, and keeps the choices with the
    /// model: whoever opens the image has them, without measuring again. `clock` counts nanoseconds
    /// from anywhere.
    #[must_use]
    pub fn tuned(mut self, clock: &mut dyn FnMut() -> u64) -> Self {
        let Ok(predictor) = Predictor::open(self.bytes()) else {
            return self;
        };
        let words = predictor.tuned(clock).tuning().words();
        self.words[HEADER_WORDS - TUNING_WORDS..HEADER_WORDS].copy_from_slice(&words);
        self.words[2] = checksum(&self.words[UNCHECKED_WORDS..]);
        self
    }

    /// The bytes, to be written to a file or to shared memory; they start on an 8-byte boundary.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }

    /// Appends an array, padded to 8 bytes.
    pub(crate) fn push<T: bytemuck::NoUninit>(&mut self, array: &[T]) {
        let (whole, rest) = bytemuck::cast_slice::<T, u8>(array).as_chunks::<8>();
        self.words
            .extend(whole.iter().map(|word| u64::from_ne_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.words.push(u64::from_ne_bytes(last));
        }
    }
}

/// The arrays of an image, in its order.
#[derive(Default)]
struct Arrays {
    base: Vec<f64>,
    expected: Vec<f64>,
    value: Vec<f64>,
    share: Vec<f64>,
    merged: Vec<f64>,
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
    previous: Vec<u32>,
    set_starts: Vec<u32>,
    set_places: Vec<u32>,
    set_words: Vec<u32>,
    flags: Vec<u8>,
}

impl Arrays {
    /// Room for so many nodes at once: arrays that grow step by step take up to three times as much
    /// memory while they are copied.
    fn reserve(&mut self, nodes: usize) {
        for array in [&mut self.value, &mut self.share, &mut self.merged] {
            array.reserve_exact(nodes);
        }
        for array in [
            &mut self.left,
            &mut self.right,
            &mut self.feature,
            &mut self.label,
            &mut self.previous,
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
        for &(place, bits) in tree.sets().words() {
            self.set_places.push(place);
            self.set_words.push(bits);
        }
        self.node_starts.push(self.flags.len() as u32);
        self.depths.push(tree.depth());
        self.tree_groups.push(tree.group().unwrap_or(ALL_GROUPS));
        self.push_paths(tree, groups);
    }

    /// Appends what SHAP needs of the tree.
    fn push_paths(&mut self, tree: &Tree, groups: usize) {
        let branch_of = |node: &Node| {
            let is_split = node.flags & flag::LEAF == 0;
            let (feature, left, right) = (node.feature, node.left, node.right);
            is_split.then_some(Branch {
                feature,
                left,
                right,
            })
        };
        let splits: Vec<Option<Branch>> = tree.nodes().iter().map(branch_of).collect();
        let cover: Vec<f64> = tree.nodes().iter().map(|node| node.cover).collect();
        let paths = PathArrays::build(&splits, &cover);
        let outputs = if tree.group().is_none() { groups } else { 1 };
        for output in 0..outputs {
            self.expected
                .push(expected_value(&splits, &paths.share, |leaf| {
                    let value = tree.nodes()[leaf].value;
                    match tree.group() {
                        Some(_) => value,
                        None => tree.leaf_vectors()[value as usize * groups + output],
                    }
                }));
        }
        self.share.extend(paths.share);
        self.merged.extend(paths.merged);
        self.previous.extend(paths.previous);
        self.path_features.push(paths.path_features);
    }

    fn rank_form(&self, library: Library, features: usize) -> RankForm {
        RankForm::build(&Source {
            node_starts: &self.node_starts,
            left: &self.left,
            right: &self.right,
            feature: &self.feature,
            flags: &self.flags,
            value: &self.value,
            features,
            zero: match library {
                Library::Lightgbm => ZERO_MAX,
                Library::Xgboost | Library::Sklearn => 0.0,
            },
            is_single: library == Library::Xgboost && self.leaf_vectors.is_empty(),
            is_double: library != Library::Xgboost && self.leaf_vectors.is_empty(),
        })
    }

    /// The lots of a model that can be explained in blocks.
    fn lots(&self, features: usize, groups: usize, ranks: &RankForm) -> Lots {
        let view = EnsembleView {
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
            merged: &self.merged,
            previous: &self.previous,
            leaf_vectors: &self.leaf_vectors,
            set_starts: &self.set_starts,
            set_places: &self.set_places,
            set_words: &self.set_words,
            ranks: ranks.view(),
            lots: LotsView::default(),
        };
        match can_explain(&view) {
            true => Lots::build(&view),
            false => Lots::default(),
        }
    }

    fn image(&self, header: Header, ranks: &RankForm, lots: &Lots) -> Image {
        let mut image = Image {
            words: vec![MAGIC, 0, 0],
        };
        image.words.extend(header.words());
        for array in [
            &self.base,
            &self.expected,
            &self.value,
            &self.share,
            &self.merged,
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
            &self.previous,
            &self.set_starts,
            &self.set_places,
            &self.set_words,
        ] {
            image.push(array);
        }
        image.push(&self.flags);
        ranks.push_to(&mut image);
        lots.push_to(&mut image);
        image.words[1] = image.words.len() as u64 * 8;
        image.words[2] = checksum(&image.words[UNCHECKED_WORDS..]);
        image
    }
}
