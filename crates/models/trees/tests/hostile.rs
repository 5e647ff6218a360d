//! Corrupt and malicious files: each gives an error that names the problem, or a model that
//! predicts without panic and in bounded time.

// A corrupt zoo stops the tests.
#![allow(clippy::expect_used, clippy::panic)]

mod zoo;

use std::cell::Cell;

use albacore_trees::{
    ElementType, Image, ImageError, Kind, Model, ModelError, OutputMut, PredictScratch, Predictor,
    Rows,
};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// A model with one split on each of two features.
const JSON: &str = r#"{"version":[3,2,0],"learner":{"attributes":{},"feature_names":["a","b"],
"gradient_booster":{"name":"gbtree","model":{"gbtree_model_param":{"num_parallel_tree":"1"},
"iteration_indptr":[0,1],"tree_info":[0],"trees":[{"tree_param":{"size_leaf_vector":"1"},
"left_children":[1,3,-1,-1,-1],"right_children":[2,4,-1,-1,-1],"split_indices":[0,1,0,0,0],
"split_conditions":[0.5,1,10,20,30],"default_left":[1,0,0,0,0],"split_type":[0,1,0,0,0],
"sum_hessian":[10,6,4,2,4],"categories":[1,33],"categories_nodes":[1],"categories_segments":[0],
"categories_sizes":[2]}]}},"learner_model_param":{"base_score":"[5E-1]","num_class":"0",
"num_feature":"2","num_target":"1"},"objective":{"name":"reg:squarederror"}}}"#;

/// A model with one numerical and one categorical split.
const TEXT: &str = "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=1\n\
objective=regression\nfeature_names=a b\n\nTree=0\nnum_leaves=3\nnum_cat=1\nsplit_feature=0 1\n\
threshold=0.5 0\ndecision_type=10 1\nleft_child=1 -1\nright_child=-3 -2\nleaf_value=10 20 30\n\
leaf_count=2 4 4\ninternal_count=10 6\ncat_boundaries=0 2\ncat_threshold=2 2\nis_linear=0\n\n\n\
end of trees\n\nparameters:\nend of parameters\n";

/// Predicts all kinds that the model supports for a few rows.
fn exercise(model: &Model) -> Vec<f64> {
    let image = Image::compile(model);
    let predictor = Predictor::open(image.bytes()).expect("what compiles opens");
    let values = [
        0.0,
        1.0,
        33.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e30,
        -0.5,
    ];
    let features = predictor.features();
    let rows: Vec<f64> = values.iter().cycle().take(features * 5).copied().collect();
    let mut scratch = PredictScratch::default();
    let mut margins = Vec::new();
    for kind in Kind::ALL {
        let length = 5 * predictor.output_width(kind);
        if length > 1 << 22 {
            continue;
        }
        let (mut f32s, mut f64s, mut leaves) =
            (vec![0.0; length], vec![0.0; length], vec![0; length]);
        let out = match predictor.output_element(kind) {
            ElementType::F32 => OutputMut::F32(&mut f32s),
            ElementType::F64 => OutputMut::F64(&mut f64s),
            ElementType::I32 => OutputMut::I32(&mut leaves),
        };
        // Contributions are rejected if covers are missing; nothing else can fail.
        let result = predictor.predict(kind, Rows::F64(&rows), out, &mut scratch);
        if kind == Kind::Margin {
            result.expect("margins of any model");
            let is_double = predictor.output_element(kind) == ElementType::F64;
            let widened = f32s.into_iter().map(f64::from);
            margins = if is_double { f64s } else { widened.collect() };
        }
    }
    margins
}

/// Returns the error message of a rejected model.
fn error_message(bytes: &[u8]) -> String {
    match Model::parse(bytes) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted: {}", String::from_utf8_lossy(bytes)),
    }
}

#[test]
fn handwritten_models_are_read_as_written() {
    // Row 0 is (0, 1): left, then by category 1; row 1 is (33, -1); row 2 (NaN, inf), ...
    let xgboost = exercise(&Model::parse(JSON.as_bytes()).expect("a model"));
    assert_eq!(xgboost, [30.5, 10.5, 20.5, 20.5, 20.5]);
    let lightgbm = exercise(&Model::parse(TEXT.as_bytes()).expect("a model"));
    assert_eq!(lightgbm, [10.0, 30.0, 20.0, 20.0, 20.0]);
    // Feature b of the rows: 1, -1, infinity, 1e30, 0.
    let sklearn = exercise(&Model::parse(SKLEARN.as_bytes()).expect("a model"));
    assert_eq!(sklearn, [0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]);
}

/// Text to replace in [`JSON`], its replacement, and a part of the expected error.
const JSON_CONTRADICTIONS: &[(&str, &str, &str)] = &[
    (
        "[1,3,-1,-1,-1]",
        "[1,1,-1,-1,-1]",
        "node 1 is the child of two splits, or of itself",
    ),
    (
        "[1,3,-1,-1,-1]",
        "[1,0,-1,-1,-1]",
        "node 0 is the child of two splits, or of itself",
    ),
    (
        "[1,3,-1,-1,-1]",
        "[1,4,-1,-1,-1]",
        "node 4 is the child of two splits, or of itself",
    ),
    (
        "[1,3,-1,-1,-1]",
        "[1,9,-1,-1,-1]",
        "child 9, but the tree has 5 nodes",
    ),
    (
        "[1,3,-1,-1,-1]",
        "[1,-7,-1,-1,-1]",
        "but the tree has 5 nodes",
    ),
    (
        "[1,3,-1,-1,-1]",
        "[1,3,-1,-1]",
        "right_children: 5 entries instead of 4",
    ),
    (
        "[1,3,-1,-1,-1]",
        "[]",
        "right_children: 5 entries instead of 0",
    ),
    (
        "[1,3,-1,-1,-1]",
        "[1,3,-1,-1,5000000000]",
        "'5000000000' is not a valid number for this field",
    ),
    (
        "\"split_indices\":[0,1",
        "\"split_indices\":[0,2",
        "a split on feature 2, but the model has 2 features",
    ),
    (
        "\"split_indices\":[0,1",
        "\"split_indices\":[0,-1",
        "a split on feature 4294967295",
    ),
    (
        "\"tree_info\":[0]",
        "\"tree_info\":[1]",
        "tree_info[0]: group 1, but the model has 1 groups",
    ),
    (
        "\"tree_info\":[0]",
        "\"tree_info\":[0,0]",
        "tree_info: 2 entries for 1 trees",
    ),
    (
        "[0,1],\"tree_info\"",
        "[0,2],\"tree_info\"",
        "not an ascending list from 0 to 1",
    ),
    (
        "\"num_feature\":\"2\"",
        "\"num_feature\":\"0\"",
        "a model without features",
    ),
    (
        "\"num_feature\":\"2\"",
        "\"num_feature\":\"x\"",
        "'x' is not a count",
    ),
    (
        "\"num_feature\":\"2\"",
        "\"num_feature\":\"99999999\"",
        "model too large",
    ),
    (
        "\"num_class\":\"0\"",
        "\"num_class\":\"99999999\"",
        "model too large",
    ),
    (
        "\"num_class\":\"0\"",
        "\"num_class\":\"0\",\"num_class\":\"0\"",
        "appears twice",
    ),
    ("[5E-1]", "[5E-1,1,2]", "3 scores for 1 groups"),
    ("[5E-1]", "much", "'much' is not a number"),
    (
        "reg:squarederror",
        "reg:unheard",
        "objective reg:unheard is not known",
    ),
    (
        "\"name\":\"gbtree\"",
        "\"name\":\"gblinear\"",
        "gblinear is not a tree model",
    ),
    (
        "\"categories\":[1,33]",
        "\"categories\":[1,-33]",
        "a category is negative or not below 2^24",
    ),
    (
        "\"categories\":[1,33]",
        "\"categories\":[1,16777216]",
        "a category is negative or not below 2^24",
    ),
    (
        "categories_sizes\":[2]",
        "categories_sizes\":[3]",
        "the sum is 3, but there are 2 categories",
    ),
    (
        "categories_sizes\":[2]",
        "categories_sizes\":[-2]",
        "-2 categories from 0, but there are 2",
    ),
    (
        "categories_nodes\":[1]",
        "categories_nodes\":[0]",
        "node 1 has a categorical split but no categories",
    ),
    (
        "leaf_vector\":\"1\"",
        "leaf_vector\":\"3\"",
        "the key is missing",
    ),
    (
        "[0.5,1,10,20,30]",
        "[NaN,1,10,20,30]",
        "trees[0]: the threshold of node 0 is not a number",
    ),
    (
        "[1,3,-1,-1,-1]",
        "[1,5,-1,-1,-1]",
        "trees[0].right_children: node 1: child 5, but the tree has 5 nodes",
    ),
    (
        "\"num_feature\":\"2\"",
        "\"num_feature\":\"9223372036854775808\"",
        "model too large",
    ),
    (
        "\"num_target\":\"1\"",
        "\"num_target\":\"9223372036854775808\"",
        "model too large",
    ),
    (
        "\"learner_model_param\":{",
        "\"learner_model_param\":{\"num_target\":\"1\",",
        "learner.learner_model_param.num_target: the key appears twice",
    ),
    (
        "\"attributes\":{}",
        "\"gradient_booster\":{}",
        "learner.gradient_booster: the key appears twice",
    ),
    (
        "\"version\":[3,2,0]",
        "\"version\":[3,2,0,0,0]",
        "an array of more than 4 elements",
    ),
    ("}}}", "}}} x", "instead of the end of the file"),
    ("\"learner\":", "\"learner\" ", "instead of ':'"),
];

/// A forest of two trees with one split each, in the format of `scripts/sklearn_to_json.py`.
const SKLEARN: &str = r#"{"scikit_learn":"1.8.0","estimator":"RandomForestClassifier","transform":"identity",
"counts":[2,2,1,1,1],"base":[0.0,0.0],"feature_names":["a","b"],"trees":[{"left":[1,-1,-1],"right":[2,-1,-1],
"feature":[1,0,0],"missing_left":[1,0,0],"threshold":[0.5,0,0],"cover":[5,2,3],"value":[0,0,1,0,0,1]}]}"#;

/// Text to replace in [`SKLEARN`], its replacement, and a part of the expected error.
const SKLEARN_CONTRADICTIONS: &[(&str, &str, &str)] = &[
    (
        "[1,-1,-1]",
        "[0,-1,-1]",
        "trees[0]: node 0 is the child of two splits, or of itself",
    ),
    (
        "[2,-1,-1]",
        "[7,-1,-1]",
        "trees[0]: node 0: child 7, but the tree has 3 nodes",
    ),
    (
        "[0.5,0,0]",
        "[NaN,0,0]",
        "trees[0]: the threshold of node 0 is not a number",
    ),
    (
        "[0.5,0,0]",
        "[0.5,0]",
        "trees[0].threshold: 2 entries instead of 3",
    ),
    (
        "\"feature\":[1,",
        "\"feature\":[2,",
        "trees[0]: a split on feature 2, but the model has 2 features",
    ),
    (
        "[2,2,1,1,1]",
        "[2,2,3,1,1]",
        "trees: 1 trees, 3 per iteration, 2 groups",
    ),
    (
        "[2,2,1,1,1]",
        "[2,99999999,1,1,1]",
        "counts: 2 features, 99999999 groups",
    ),
    ("[2,2,1,1,1]", "[2,2,1]", "counts: 3 numbers instead of 5"),
    ("[0.0,0.0]", "[0.0]", "1 base margins for 2 groups"),
    ("\"identity\"", "\"odd\"", "transform odd is not known"),
    (
        "\"base\":",
        "\"counts\":[2,2,1,1,1],\"base\":",
        "counts: the key appears twice",
    ),
    (
        "0,0,1,0,0,1]",
        "0,0,1,0,0]",
        "trees[0].value: 5 entries instead of 6",
    ),
];

/// Text to replace in [`TEXT`], its replacement, and a part of the expected error.
const TEXT_CONTRADICTIONS: &[(&str, &str, &str)] = &[
    (
        "left_child=1 -1",
        "left_child=0 -1",
        "node 0 is the child of two splits, or of itself",
    ),
    (
        "left_child=1 -1",
        "left_child=2 -1",
        "but the tree has 5 nodes",
    ),
    (
        "left_child=1 -1",
        "left_child=1 -9",
        "child 10, but the tree has 5 nodes",
    ),
    ("left_child=1 -1", "left_child=1", "1 numbers instead of 2"),
    (
        "num_leaves=3",
        "num_leaves=0",
        "Tree=0.leaf_value: 3 numbers instead of 0",
    ),
    (
        "num_leaves=3",
        "num_leaves=99999999999",
        "numbers instead of 99999999998",
    ),
    (
        "num_leaves=3",
        "num_leaves=3\nnum_leaves=3",
        "Tree=0.num_leaves: the key appears twice",
    ),
    (
        "split_feature=0 1",
        "split_feature=0 2",
        "a split on feature 2, but the model has 2 features",
    ),
    (
        "threshold=0.5 0",
        "threshold=0.5 1",
        "node 1 refers to category set 1, but the tree has 1",
    ),
    (
        "threshold=0.5 0",
        "threshold=0.5 NaN",
        "the threshold of node 1 is not a number",
    ),
    (
        "cat_boundaries=0 2",
        "cat_boundaries=0 3",
        "not an ascending list from 0 to 2",
    ),
    (
        "decision_type=10",
        "decision_type=14",
        "unknown missing type 3",
    ),
    (
        "threshold=0.5 0",
        "threshold=nan 0",
        "Tree=0: the threshold of node 0 is not a number",
    ),
    (
        "num_leaves=3",
        "num_leaves=9223372036854775808",
        "Tree=0.left_child: 2 numbers instead of 9223372036854775807",
    ),
    (
        "max_feature_idx=1",
        "max_feature_idx=9223372036854775808",
        "model too large",
    ),
    (
        "num_cat=1",
        "num_cat=9223372036854775808",
        "Tree=0.cat_boundaries: 2 numbers instead of 9223372036854775809",
    ),
    ("is_linear=0", "is_linear=1", "linear trees"),
    (
        "iteration=1",
        "iteration=0",
        "1 trees are not a multiple of 0 trees per iteration",
    ),
    (
        "iteration=1",
        "iteration=2",
        "1 trees are not a multiple of 2 trees per iteration",
    ),
    (
        "max_feature_idx=1",
        "max_feature_idx=-1",
        "'-1' is not a number",
    ),
    ("version=v4", "version=v2", "save it with LightGBM 3 or 4"),
    (
        "objective=regression",
        "objective=unheard",
        "objective unheard is not known",
    ),
];

#[test]
fn an_inconsistency_is_reported_with_its_field() {
    for (model, contradictions) in [
        (JSON, JSON_CONTRADICTIONS),
        (TEXT, TEXT_CONTRADICTIONS),
        (SKLEARN, SKLEARN_CONTRADICTIONS),
    ] {
        for (from, to, message) in contradictions {
            assert!(model.contains(from), "{from}");
            let given = error_message(model.replacen(from, to, 1).as_bytes());
            assert!(given.contains(message), "{to}: {given}");
        }
    }
}

#[test]
fn bytes_that_are_not_a_model_are_rejected() {
    for bytes in [
        &b""[..],
        b"{",
        b"{}",
        b"hello",
        b"tree",
        b"PK\x03\x04",
        b"[1]",
        &[0xff; 64],
    ] {
        error_message(bytes);
    }
    let error = Model::parse(b"binf").err();
    assert!(
        matches!(error, Some(ModelError::Foreign { .. })),
        "{error:?}"
    );
}

#[test]
fn a_truncated_file_is_rejected() {
    let cut_everywhere = |whole: &[u8], step: usize| {
        Model::parse(whole).expect("a model");
        for length in (0..whole.len()).step_by(step) {
            error_message(&whole[..length]);
        }
    };
    cut_everywhere(JSON.as_bytes(), 1);
    cut_everywhere(SKLEARN.as_bytes(), 1);
    let text = TEXT.as_bytes();
    let end_of_trees = TEXT.find("end of trees").expect("an end") + "end of trees".len();
    for length in 0..end_of_trees {
        error_message(&text[..length]);
    }
    for (name, step) in [
        ("xgb_sliced", 1),
        ("xgb_cat_onehot", 97),
        ("xgb_v176_reg_dart", 97),
    ] {
        for (_, bytes) in zoo::sample(name).models() {
            cut_everywhere(&bytes, step);
        }
    }
}

#[test]
fn a_message_quotes_at_most_a_line_of_a_file() {
    let long = "x".repeat(1 << 20);
    for (model, from) in [
        (JSON, "reg:squarederror"),
        (JSON, "gbtree"),
        (JSON, "5E-1"),
        (JSON, "0.5"),
        (JSON, "num_feature\":\"2"),
        (TEXT, "v4"),
        (TEXT, "objective=regression"),
        (TEXT, "0.5"),
        (TEXT, "num_leaves=3"),
    ] {
        let damaged = model.replacen(from, &format!("{from}{long}"), 1);
        assert!(error_message(damaged.as_bytes()).len() < 400, "{from}");
    }
    let key = JSON.replacen('{', &format!("{{\"{long}\":[}},"), 1);
    assert!(error_message(key.as_bytes()).len() < 400);
}

#[test]
fn nesting_is_bounded_in_every_format() {
    for nested in ["[".repeat(100_000), "{\"a\":".repeat(100_000)] {
        let message = error_message(
            JSON.replacen("\"version\":", &format!("\"x\":{nested}"), 1)
                .as_bytes(),
        );
        assert!(message.contains("nesting of 65"), "{message}");
    }
    for nested in [&b"["[..], b"[$[#U\x01", b"{U\x01a", b"{$[#U\x01U\x01a"] {
        let mut bytes = b"{U\x01x".to_vec();
        bytes.extend(nested.iter().cycle().take(500_000));
        let message = error_message(&bytes);
        assert!(
            message.contains("nesting of 65") || message.contains("damaged"),
            "{message}"
        );
    }
}

#[test]
fn a_path_deeper_than_the_bound_is_rejected_and_one_within_it_predicts() {
    let chain = |splits: usize| {
        let list = |f: &dyn Fn(usize) -> i64| {
            let numbers: Vec<String> = (0..splits).map(|split| f(split).to_string()).collect();
            numbers.join(" ")
        };
        let last = splits - 1;
        format!(
            "tree\nversion=v4\nnum_tree_per_iteration=1\nmax_feature_idx=1\n\nTree=0\n\
             num_leaves={}\nsplit_feature={}\nthreshold={}\ndecision_type={}\nleft_child={}\n\
             right_child={}\nleaf_value={}\nleaf_count={}\ninternal_count={}\nend of trees\n",
            splits + 1,
            list(&|split| split as i64 % 2),
            list(&|split| split as i64),
            list(&|_| 10),
            list(&|split| !(split as i64)),
            list(&|split| if split == last {
                !(splits as i64)
            } else {
                split as i64 + 1
            }),
            list(&|split| split as i64) + " 7",
            list(&|_| 1) + " 1",
            list(&|split| (splits - split) as i64 + 1),
        )
    };
    let margins = exercise(&Model::parse(chain(4096).as_bytes()).expect("a deep model"));
    assert_eq!(margins[0], 0.0);
    let message = error_message(chain(4097).as_bytes());
    assert!(
        message.contains("Tree=0: a path of 4097 steps to node 8193"),
        "{message}"
    );
}

#[test]
fn a_corrupt_image_is_rejected() {
    let model = Model::parse(JSON.as_bytes()).expect("a model");
    let image = Image::compile(&model);
    let words: &[u64] = bytemuck::cast_slice(image.bytes());
    for length in 0..image.bytes().len() {
        Predictor::open(&image.bytes()[..length]).expect_err("a cut image");
    }
    for bit in 0..words.len() * 64 {
        let mut damaged = words.to_vec();
        damaged[bit / 64] ^= 1 << (bit % 64);
        Predictor::open(bytemuck::cast_slice(&damaged)).expect_err("a damaged image");
    }
    let mut longer = words.to_vec();
    longer.push(0);
    let error = Predictor::open(bytemuck::cast_slice(&longer)).expect_err("a longer image");
    assert!(matches!(error, ImageError::Length { .. }), "{error}");
    let mut shifted = vec![0_u8; image.bytes().len() + 8];
    let start = 1 + shifted.as_ptr().align_offset(8);
    shifted[start..start + image.bytes().len()].copy_from_slice(image.bytes());
    let error = Predictor::open(&shifted[start..start + image.bytes().len()]);
    assert_eq!(error.err(), Some(ImageError::Misaligned));
}

#[test]
fn thresholds_larger_than_any_index_are_read_with_vector_leaves() {
    let sample = zoo::sample("xgb_multi_output_tree");
    let json = sample
        .models()
        .find(|(path, _)| path.extension().is_some_and(|it| it == "json"));
    let mut file: serde_json::Value =
        serde_json::from_slice(&json.expect("a JSON file").1).expect("JSON");
    let trees = &mut file["learner"]["gradient_booster"]["model"]["trees"];
    for tree in trees.as_array_mut().expect("trees") {
        for condition in tree["split_conditions"].as_array_mut().expect("conditions") {
            *condition = 1e30.into();
        }
    }
    exercise(&Model::parse(file.to_string().as_bytes()).expect("a model"));
}

/// Returns the smaller files of the zoo, read once.
fn files() -> Vec<Vec<u8>> {
    [
        "xgb_sliced",
        "xgb_cat_onehot",
        "xgb_multi_output_tree",
        "lgb_cat_onehot",
        "xgb_dart_multi",
    ]
    .iter()
    .flat_map(|name| {
        zoo::sample(name)
            .models()
            .map(|(_, bytes)| bytes)
            .collect::<Vec<_>>()
    })
    .chain(
        zoo::archives::models("sklearn-1.8.0")
            .into_iter()
            .step_by(5)
            .map(|it| it.files[0].1.clone()),
    )
    .chain([JSON.as_bytes().to_vec(), TEXT.as_bytes().to_vec()])
    .collect()
}

#[test]
fn every_file_of_the_fuzz_corpus_is_rejected_or_predicts() {
    let corpus = zoo::folder().join("../../../fuzz/corpus/model");
    let (mut accepted, mut files) = (0, 0);
    for file in std::fs::read_dir(corpus).expect("the corpus") {
        let bytes = std::fs::read(file.expect("a file").path()).expect("a file");
        files += 1;
        if let Ok(model) = Model::parse(&bytes) {
            exercise(&model);
            accepted += 1;
        }
    }
    assert!(files >= 25 && accepted >= 10, "{accepted} of {files}");
}

#[test]
fn a_file_with_changed_bytes_is_rejected_or_predicts() {
    let files = files();
    let accepted = Cell::new(0);
    let config = ProptestConfig {
        cases: 4096,
        failure_persistence: None,
        ..Default::default()
    };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0_u8..3);
    let changes = prop::collection::vec(change, 1..4);
    let strategy = (0..files.len(), changes);
    runner
        .run(&strategy, |(file, changes)| {
            let mut bytes = files[file].clone();
            for (index, byte, how) in changes {
                let index = index.index(bytes.len());
                match how {
                    0 => bytes[index] = byte,
                    1 => bytes.insert(index, byte),
                    _ => drop(bytes.remove(index)),
                }
            }
            if let Ok(model) = Model::parse(&bytes) {
                exercise(&model);
                accepted.set(accepted.get() + 1);
            }
            Ok(())
        })
        .expect("no panic");
    assert!(accepted.get() > 0);
}
