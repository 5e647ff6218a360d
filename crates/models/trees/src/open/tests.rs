//! Images with a valid checksum and invalid contents.

use super::*;
use crate::layout::image::UNCHECKED_WORDS;
use crate::{ElementType, Image, Kernel, Kind, Model, OutputMut, PredictScratch, Predictor, Rows};

/// Two iterations of two groups, with numerical and categorical splits.
const MODEL: &str = "tree\nversion=v4\nnum_tree_per_iteration=2\nmax_feature_idx=1\n\
objective=multiclass num_class:2\n\n\
Tree=0\nnum_leaves=3\nnum_cat=1\nsplit_feature=0 1\nthreshold=0.5 0\ndecision_type=10 1\n\
left_child=1 -1\nright_child=-3 -2\nleaf_value=10 20 30\nleaf_count=2 4 4\ninternal_count=10 6\n\
cat_boundaries=0 2\ncat_threshold=2 2\n\n\
Tree=1\nnum_leaves=1\nleaf_value=4\n\n\
Tree=2\nnum_leaves=3\nsplit_feature=1 1\nthreshold=0.5 -1\ndecision_type=4 10\n\
left_child=1 -1\nright_child=-3 -2\nleaf_value=1 2 3\nleaf_count=2 4 4\ninternal_count=10 6\n\n\
Tree=3\nnum_leaves=1\nleaf_value=5\n\nend of trees\n";

/// An XGBoost model of two trees.
const SINGLE: &str = r#"{"learner":{"gradient_booster":{"name":"gbtree","model":{
"tree_info":[0,0],"trees":[
{"tree_param":{},"left_children":[1,-1,3,-1,-1],"right_children":[2,-1,4,-1,-1],
"split_indices":[0,0,1,0,0],"split_conditions":[0.5,1,2.5,3,4],"default_left":[0,0,1,0,0],
"sum_hessian":[4,2,2,1,1]},
{"tree_param":{},"left_children":[1,-1,-1],"right_children":[2,-1,-1],"split_indices":[1,0,0],
"split_conditions":[33,1,2],"default_left":[1,0,0],"sum_hessian":[4,2,2]}]}},
"learner_model_param":{"base_score":"0","num_feature":"2"},
"objective":{"name":"reg:squarederror"}}}"#;

/// An XGBoost model of two bundles: paths of one feature, and of three.
const TWO_BUNDLES: &str = r#"{"learner":{"gradient_booster":{"name":"gbtree","model":{
"tree_info":[0,0],"trees":[
{"tree_param":{},"left_children":[1,-1,-1],"right_children":[2,-1,-1],"split_indices":[1,0,0],
"split_conditions":[33,1,2],"default_left":[1,0,0],"sum_hessian":[4,2,2]},
{"tree_param":{},"left_children":[1,-1,3,-1,5,-1,-1],"right_children":[2,-1,4,-1,6,-1,-1],
"split_indices":[0,0,1,0,2,0,0],"split_conditions":[0.5,1,2.5,3,4.5,5,6],
"default_left":[0,0,1,0,0,0,0],"sum_hessian":[8,2,6,2,4,2,2]}]}},
"learner_model_param":{"base_score":"0","num_feature":"3"},
"objective":{"name":"reg:squarederror"}}}"#;

fn words() -> Vec<u64> {
    words_of_model(MODEL)
}

fn words_of_model(model: &str) -> Vec<u64> {
    let image = Image::compile(&Model::parse(model.as_bytes()).expect("a model"));
    bytemuck::cast_slice(image.bytes()).to_vec()
}

/// Opens the words with a valid checksum and predicts all kinds if they open.
fn exercise(words: &mut [u64]) -> Result<(), ImageError> {
    words[2] = checksum_of_image(words);
    let opened = Predictor::open(bytemuck::cast_slice(words))?;
    for kernel in Kernel::ALL {
        if let Some(predictor) = opened.with_kernel(kernel) {
            predict_all(&predictor)?;
        }
    }
    Ok(())
}

/// Predicts all kinds, unless the model is too wide for a test.
fn predict_all(predictor: &Predictor<'_>) -> Result<(), ImageError> {
    if predictor.features() > 64 || predictor.groups() > 64 {
        return Ok(());
    }
    let values = [0.0, 1.0, 33.0, -1.0, f64::NAN, f64::INFINITY];
    let rows: Vec<f64> = values
        .iter()
        .cycle()
        .take(3 * predictor.features())
        .copied()
        .collect();
    let mut scratch = PredictScratch::default();
    for kind in Kind::ALL {
        let length = 3 * predictor.output_width(kind);
        let (mut f32s, mut f64s, mut i32s) =
            (vec![0.0; length], vec![0.0; length], vec![0; length]);
        let out = match predictor.output_element(kind) {
            ElementType::F32 => OutputMut::F32(&mut f32s),
            ElementType::F64 => OutputMut::F64(&mut f64s),
            ElementType::I32 => OutputMut::I32(&mut i32s),
        };
        let result = predictor.predict(kind, Rows::F64(&rows), out, &mut scratch);
        assert!(result.is_ok() || matches!(kind, Kind::Contribs | Kind::Interactions));
    }
    Ok(())
}

#[test]
fn a_corrupt_word_with_a_valid_checksum_is_rejected_or_predicts() {
    damage_each_word_of(&words());
    damage_each_word_of(&words_of_model(SINGLE));
    damage_each_word_of(&words_of_model(TWO_BUNDLES));
}

fn damage_each_word_of(original: &[u64]) {
    assert_eq!(exercise(&mut original.to_vec()), Ok(()));
    let (mut refused, mut accepted) = (0, 0);
    for index in UNCHECKED_WORDS..original.len() {
        let word = original[index];
        let halves = [0, 1, 2, 5, 1 << 16, u64::from(u32::MAX), u64::MAX];
        let replacements = halves.into_iter().flat_map(|half| {
            let half_low = half & u64::from(u32::MAX);
            [
                half,
                word ^ half,
                word.wrapping_add(half),
                word.wrapping_sub(half),
            ]
            .into_iter()
            .chain([
                half_low << 32 | word & u64::from(u32::MAX),
                word >> 32 << 32 | half_low,
            ])
        });
        for replacement in replacements {
            let mut words = original.to_vec();
            words[index] = replacement;
            match exercise(&mut words) {
                Ok(()) => accepted += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(
        refused > 100 && accepted > 100,
        "{refused} refused, {accepted} accepted"
    );
}

#[test]
fn an_index_out_of_range_is_reported_with_its_section() {
    let error_of = |index: usize, word: u64| {
        let mut words = words();
        words[index] = word;
        exercise(&mut words)
            .expect_err("a damaged image")
            .to_string()
    };
    assert!(error_of(0, 7).contains("header has 0x7"));
    assert!(error_of(1, 7).contains("but the header announces 7"));
    assert!(error_of(3, 9).contains("library or objective"));
    assert!(error_of(4, 1 << 40).contains("properties"));
    assert!(error_of(7, u64::MAX).contains("counts"));
    assert!(error_of(7, 1).contains("features of tree 0"));
    assert!(error_of(10, u64::MAX).contains("counts"));
}

#[test]
fn a_checksum_that_does_not_match_is_an_error() {
    let mut words = words();
    words[2] ^= 1;
    let error = Predictor::open(bytemuck::cast_slice(&words)).expect_err("a damaged image");
    assert_eq!(error, ImageError::Checksum);
}
