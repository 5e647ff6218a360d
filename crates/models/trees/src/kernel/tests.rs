//! Every kernel against the reference, on random models and rows: thresholds and their neighbors,
//! both zeros, subnormals, infinities, NaN, categories and values that are not categories.

use proptest::prelude::*;

use super::Kernel;
use albacore_formats::{CategorySets, ModelParts, RawNode, RawTree, Transform, Tree, flag};

use crate::{
    ElementType, Format, Image, Kind, Library, Model, OutputMut, PredictScratch, Predictor, Rows,
};

/// Random numbers from a seed (SplitMix64).
pub(crate) struct RandomStream(pub(crate) u64);

impl RandomStream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a number of any magnitude, often a special value.
    fn number(&mut self) -> f64 {
        let specials = [
            0.0,
            -0.0,
            f64::from(f32::from_bits(1)),
            -f64::from(f32::from_bits(1)),
            f64::from(f32::MAX),
            -f64::from(f32::MAX),
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e-35,
            -1e-36,
            5e-324,
            1.0,
        ];
        match self.below(4) {
            0 => self.pick(&specials),
            1 => f64::from(f32::from_bits(self.next() as u32)),
            2 => self.below(40) as f64 / 8.0 - 2.0,
            _ => f64::from_bits(self.next()),
        }
    }
}

/// Shape of a random model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelShape {
    pub(crate) library: Library,
    pub(crate) features: usize,
    pub(crate) groups: usize,
    pub(crate) trees: usize,
    pub(crate) leaves: usize,
    /// Percentage of categorical splits.
    pub(crate) categorical: usize,
    pub(crate) has_vectors: bool,
}

fn threshold(library: Library, numbers: &mut RandomStream) -> f64 {
    // bound: a random number is rarely NaN.
    let x = std::iter::repeat_with(|| numbers.number()).find(|x| !x.is_nan());
    match library {
        // Also for scikit-learn, so that large models have keys.
        Library::Xgboost | Library::Sklearn => f64::from(x.unwrap_or(0.0) as f32),
        Library::Lightgbm => x.unwrap_or(0.0),
    }
}

fn split_flags(shape: ModelShape, is_categorical: bool, numbers: &mut RandomStream) -> u8 {
    let mut flags = numbers.pick(&[0, flag::DEFAULT_LEFT]);
    flags |= match shape.library {
        Library::Xgboost => flag::MISSING_NAN,
        Library::Lightgbm => {
            let missing = [0, flag::MISSING_NAN, flag::MISSING_NAN | flag::MISSING_ZERO];
            flag::INCLUSIVE | numbers.pick(&missing)
        }
        Library::Sklearn => flag::INCLUSIVE | numbers.pick(&[0, flag::MISSING_NAN]),
    };
    flags | if is_categorical { flag::CATEGORICAL } else { 0 }
}

fn tree(shape: ModelShape, group: usize, numbers: &mut RandomStream) -> Tree {
    let leaf = |label: usize| RawNode {
        label: label as u32,
        children: None,
        feature: 0,
        flags: 0,
        value: 0.0,
        cover: 1.0,
    };
    let (mut raw, mut pending) = (vec![leaf(0)], vec![0]);
    let mut sets = CategorySets::default();
    for _ in 1..1 + numbers.below(shape.leaves) {
        let node = pending.swap_remove(numbers.below(pending.len()));
        let is_categorical = numbers.chance(shape.categorical);
        raw[node].flags = split_flags(shape, is_categorical, numbers);
        raw[node].feature = numbers.below(shape.features) as u32;
        raw[node].value = if is_categorical {
            let members = (0..6).map(|_| numbers.below(70) as u32).collect();
            sets.push_categories(members) as f64
        } else {
            threshold(shape.library, numbers)
        };
        let children = (raw.len(), raw.len() + 1);
        raw[node].children = Some(children);
        raw.extend([leaf(children.0), leaf(children.1)]);
        pending.extend([children.0, children.1]);
    }
    let mut leaf_vectors = Vec::new();
    for leaf in pending {
        raw[leaf].value = if shape.has_vectors {
            let index = leaf_vectors.len() / shape.groups;
            let values = (0..shape.groups).map(|_| numbers.below(1000) as f64 / 999.0);
            leaf_vectors.extend(values.map(|x| f64::from(x as f32)));
            index as f64
        } else {
            f64::from(numbers.below(1000) as f32 / 999.0)
        };
    }
    for node in (0..raw.len()).rev() {
        raw[node].cover = match raw[node].children {
            Some((left, right)) => raw[left].cover + raw[right].cover,
            None => numbers.below(5) as f64,
        };
    }
    let raw = RawTree {
        group: (!shape.has_vectors).then_some(group as u32),
        nodes: raw,
        leaf_vectors,
        sets,
        has_covers: true,
    };
    Tree::build(raw).expect("a tree")
}

pub(crate) fn model(shape: ModelShape, numbers: &mut RandomStream) -> Model {
    let trees: Vec<Tree> = (0..shape.trees)
        .map(|index| tree(shape, index % shape.groups, numbers))
        .collect();
    let parts = ModelParts {
        format: match shape.library {
            Library::Xgboost => Format::XgboostJson,
            Library::Lightgbm => Format::LightgbmText,
            Library::Sklearn => Format::SklearnJson,
        },
        version: String::new(),
        objective: String::new(),
        feature_names: Vec::new(),
        feature_types: Vec::new(),
        categories: Vec::new(),
        best_iteration: None,
        is_saved_by_sklearn: false,
        classes: None,
        features: shape.features,
        groups: shape.groups,
        transform: Transform::Identity,
        base: vec![0.25; shape.groups],
        is_averaged: false,
        iteration_starts: vec![0, shape.trees as u32],
        trees,
        notices: Vec::new(),
    };
    Model::new(parts).expect("a model")
}

/// Returns values around the splits of the model: thresholds, their neighbors in both precisions,
/// categories.
pub(crate) fn rows(model: &Model, count: usize, numbers: &mut RandomStream) -> Vec<f64> {
    let mut thresholds = vec![Vec::new(); model.parts().features];
    for node in model.parts().trees.iter().flat_map(Tree::nodes) {
        if node.flags & (flag::LEAF | flag::CATEGORICAL) == 0 {
            thresholds[node.feature as usize].push(node.value);
        }
    }
    let mut value = |feature: usize| {
        let near = match thresholds[feature].is_empty() {
            true => 1.0,
            false => numbers.pick(&thresholds[feature]),
        };
        match numbers.below(9) {
            0 => f64::NAN,
            1 => numbers.number(),
            2 => near.next_up(),
            3 => near.next_down(),
            4 => f64::from((near as f32).next_up()),
            5 => f64::from((near as f32).next_down()),
            6 => numbers.below(80) as f64 - 5.0,
            _ => near,
        }
    };
    let cells = (0..count).flat_map(|_| 0..model.parts().features);
    cells.map(&mut value).collect()
}

/// Returns the bits of a prediction.
pub(crate) fn predict_bits(predictor: &Predictor<'_>, kind: Kind, rows: Rows<'_>) -> Vec<u64> {
    let length = rows.values() / predictor.features() * predictor.output_width(kind);
    let mut scratch = PredictScratch::default();
    let (mut f32s, mut f64s, mut i32s) = (vec![0.0; length], vec![0.0; length], vec![0; length]);
    let out = match predictor.output_element(kind) {
        ElementType::F32 => OutputMut::F32(&mut f32s),
        ElementType::F64 => OutputMut::F64(&mut f64s),
        ElementType::I32 => OutputMut::I32(&mut i32s),
    };
    predictor
        .predict(kind, rows, out, &mut scratch)
        .expect("rows and outputs that fit");
    match predictor.output_element(kind) {
        ElementType::F32 => f32s.iter().map(|x| u64::from(x.to_bits())).collect(),
        ElementType::F64 => f64s.iter().map(|x| x.to_bits()).collect(),
        ElementType::I32 => i32s.iter().map(|&x| x as u64).collect(),
    }
}

/// Compares all kernels on one random model; returns its kernels except the reference.
fn compare(shape: ModelShape, count: usize, seed: u64) -> Vec<Kernel> {
    let mut numbers = RandomStream(seed);
    let model = model(shape, &mut numbers);
    let image = Image::compile(&model);
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let f64s = rows(&model, count, &mut numbers);
    let f32s: Vec<f32> = f64s.iter().map(|&x| x as f32).collect();
    let reference = predictor.with_kernel(Kernel::Nodes).expect("the reference");
    let others: Vec<(Kernel, Predictor<'_>)> = Kernel::ALL[1..]
        .iter()
        .filter_map(|&kernel| Some((kernel, predictor.with_kernel(kernel)?)))
        .collect();
    for kind in [Kind::Margin, Kind::Leaf] {
        for rows in [Rows::F32(&f32s), Rows::F64(&f64s)] {
            let expected = predict_bits(&reference, kind, rows);
            assert_eq!(
                predict_bits(&predictor, kind, rows),
                expected,
                "{shape:?} {kind}"
            );
            for (kernel, predictor) in &others {
                let got = predict_bits(predictor, kind, rows);
                assert_eq!(got, expected, "{kernel} {kind} {shape:?} seed {seed}");
            }
        }
    }
    others.into_iter().map(|(kernel, _)| kernel).collect()
}

/// Compares contributions: bit for bit over all kernels and batch sizes, and approximately with the
/// reference, which uses other quadrature points and another summation order.
fn compare_contribs(shape: ModelShape, count: usize, seed: u64) {
    let mut numbers = RandomStream(seed);
    let model = model(shape, &mut numbers);
    let image = Image::compile(&model);
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let rows = rows(&model, count, &mut numbers);
    let explain = |predictor: &Predictor<'_>, batch: usize| -> Vec<u64> {
        let batches = rows.chunks(batch * shape.features);
        batches
            .flat_map(|rows| predict_bits(predictor, Kind::Contribs, Rows::F64(rows)))
            .collect()
    };
    let expected = explain(&predictor, count);
    for batch in [1, 2, 7, 64] {
        assert!(
            explain(&predictor, batch) == expected,
            "{batch} {shape:?} {seed}"
        );
    }
    for kernel in [Kernel::Blocks, Kernel::BlocksAvx2, Kernel::BlocksAvx512] {
        if let Some(predictor) = predictor.with_kernel(kernel) {
            assert!(
                explain(&predictor, count) == expected,
                "{kernel} {shape:?} {seed}"
            );
            assert!(
                explain(&predictor, 1) == expected,
                "{kernel} {shape:?} {seed}"
            );
        }
    }
    let reference = predictor.with_kernel(Kernel::Nodes).expect("the reference");
    assert_near(shape, &expected, &explain(&reference, count), seed);
}

/// Compares sums that were added in another order.
fn assert_near(shape: ModelShape, got: &[u64], expected: &[u64], seed: u64) {
    let of_bits = |bits: u64| match shape.library {
        Library::Xgboost => f64::from(f32::from_bits(bits as u32)),
        Library::Lightgbm | Library::Sklearn => f64::from_bits(bits),
    };
    let tolerance = match shape.library {
        Library::Xgboost => 1e-5,
        Library::Lightgbm | Library::Sklearn => 1e-10,
    };
    for (&got, &expected) in got.iter().zip(expected) {
        let (got, expected) = (of_bits(got), of_bits(expected));
        let distance = (got - expected).abs();
        assert!(distance < tolerance, "{got} {expected} {shape:?} {seed}");
    }
}

/// Compares interactions: bit for bit over all widths, and approximately with the reference.
fn compare_interactions(shape: ModelShape, seed: u64) {
    let mut numbers = RandomStream(seed);
    let model = model(shape, &mut numbers);
    let image = Image::compile(&model);
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let rows = rows(&model, 3, &mut numbers);
    let explain =
        |predictor: &Predictor<'_>| predict_bits(predictor, Kind::Interactions, Rows::F64(&rows));
    let expected = explain(&predictor);
    for kernel in [Kernel::Blocks, Kernel::BlocksAvx2, Kernel::BlocksAvx512] {
        if let Some(predictor) = predictor.with_kernel(kernel) {
            assert!(explain(&predictor) == expected, "{kernel} {shape:?} {seed}");
        }
    }
    let reference = predictor.with_kernel(Kernel::Nodes).expect("the reference");
    assert_near(shape, &expected, &explain(&reference), seed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_kernel_is_bit_identical_to_the_reference(
        is_xgboost in any::<bool>(),
        features in 1..40_usize,
        groups in 1..4_usize,
        trees in 1..20_usize,
        leaves in 1..60_usize,
        categorical in prop_oneof![Just(0), Just(30)],
        has_vectors in prop::bool::weighted(0.1),
        count in 1..150_usize,
        seed in any::<u64>(),
    ) {
        let library = if is_xgboost { Library::Xgboost } else { Library::Lightgbm };
        let has_vectors = has_vectors && is_xgboost;
        let shape = ModelShape { library, features, groups, trees, leaves, categorical, has_vectors };
        prop_assert!(!compare(shape, count, seed).is_empty());
    }

    #[test]
    fn contributions_do_not_depend_on_the_batch_or_the_kernel(
        is_xgboost in any::<bool>(),
        features in 1..20_usize,
        groups in 1..4_usize,
        trees in 1..8_usize,
        leaves in 1..60_usize,
        categorical in prop_oneof![Just(0), Just(30)],
        has_vectors in prop::bool::weighted(0.1),
        count in 1..100_usize,
        seed in any::<u64>(),
    ) {
        let library = if is_xgboost { Library::Xgboost } else { Library::Lightgbm };
        let has_vectors = has_vectors && is_xgboost;
        let shape = ModelShape { library, features, groups, trees, leaves, categorical, has_vectors };
        compare_contribs(shape, count, seed);
    }

    #[test]
    fn interactions_do_not_depend_on_the_kernel(
        library in 0..3_usize,
        features in 1..20_usize,
        groups in 1..4_usize,
        trees in 1..20_usize,
        leaves in 1..40_usize,
        categorical in prop_oneof![Just(0), Just(30)],
        seed in any::<u64>(),
    ) {
        let library = [Library::Xgboost, Library::Lightgbm, Library::Sklearn][library];
        let has_vectors = false;
        let shape = ModelShape { library, features, groups, trees, leaves, categorical, has_vectors };
        compare_interactions(shape, seed);
    }

    #[test]
    fn a_feature_can_have_more_than_256_cuts(
        is_xgboost in any::<bool>(),
        leaves in 200..257_usize,
        count in 1..80_usize,
        seed in any::<u64>(),
    ) {
        let library = if is_xgboost { Library::Xgboost } else { Library::Lightgbm };
        let shape = ModelShape {
            library, features: 2, groups: 1, trees: 12, leaves, categorical: 5, has_vectors: false,
        };
        prop_assert!(!compare(shape, count, seed).is_empty());
    }
}

#[test]
fn large_and_deep_trees_use_the_walk_or_the_nodes_kernel() {
    for library in [Library::Xgboost, Library::Lightgbm, Library::Sklearn] {
        for categorical in [0, 10] {
            let shape = ModelShape {
                library,
                features: 3,
                groups: 1,
                trees: 2,
                leaves: 4000,
                categorical,
                has_vectors: false,
            };
            let found: Vec<_> = (0..4).map(|seed| compare(shape, 70, seed)).collect();
            // Only the walk kernel: there are no blocks. Among thousands of doubles some have equal
            // keys, so LightGBM's model has no walk nodes.
            let has_keys = library != Library::Lightgbm;
            let is_walked = found.contains(&vec![Kernel::Walk]);
            assert_eq!(is_walked, has_keys, "{library:?} {found:?}");
        }
    }
}

#[test]
fn every_kernel_of_this_cpu_is_available() {
    let mut numbers = RandomStream(1);
    let shape = ModelShape {
        library: Library::Xgboost,
        features: 3,
        groups: 1,
        trees: 2,
        leaves: 8,
        categorical: 0,
        has_vectors: false,
    };
    let image = Image::compile(&model(shape, &mut numbers));
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let names: Vec<&str> = Kernel::ALL
        .into_iter()
        .filter(|&kernel| predictor.with_kernel(kernel).is_some())
        .map(Kernel::name)
        .collect();
    assert!(names.starts_with(&["nodes", "walk", "blocks"]));
    println!("kernels: {names:?}");
}
