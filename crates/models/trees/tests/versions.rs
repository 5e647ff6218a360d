//! Models of every kind, trained by every version of their library: margins, values, leaves, SHAP
//! values, ranges of iterations and base margins, compared with the predictions of that version.

// A corrupt archive stops the tests.
#![allow(clippy::expect_used, clippy::panic)]

mod zoo;

use std::ops::Range;

use albacore_trees::{
    ElementType, Image, Kind, Library, Model, ModelError, OutputMut, PredictScratch,
    PredictionOptions, Predictor, Rows,
};
use zoo::Array;
use zoo::archives::{Trained, archives, models};

/// A prediction that is compared with that of the library.
struct Comparison {
    /// Name of the expected array.
    array: &'static str,
    kind: Kind,
    /// Name of the array of rows; only as many rows are used as the expected array has.
    rows: &'static str,
    iterations: Option<Range<usize>>,
    has_base_margin: bool,
    is_approximate: bool,
    /// Allowed distance relative to the largest magnitude of the row; 0 requires equal bits.
    tolerance: f64,
}

const fn compare_array(array: &'static str, kind: Kind) -> Comparison {
    Comparison {
        array,
        kind,
        rows: "X",
        iterations: None,
        has_base_margin: false,
        is_approximate: false,
        tolerance: 0.0,
    }
}

/// Tolerance of SHAP values: the libraries sum up to a hundred terms in `f32`.
const SHAP: f64 = 4e-6;

fn comparisons() -> Vec<Comparison> {
    let later = |comparison: Comparison| Comparison {
        iterations: Some(1..3),
        ..comparison
    };
    let first = |comparison: Comparison| Comparison {
        iterations: Some(0..2),
        ..comparison
    };
    let based = |comparison: Comparison| Comparison {
        has_base_margin: true,
        ..comparison
    };
    let approximate = |comparison: Comparison| Comparison {
        is_approximate: true,
        tolerance: SHAP,
        ..comparison
    };
    let near = |comparison: Comparison| Comparison {
        tolerance: SHAP,
        ..comparison
    };
    vec![
        compare_array("margin", Kind::Margin),
        compare_array("pred", Kind::Value),
        compare_array("leaf", Kind::Leaf),
        later(compare_array("margin_range_1_3", Kind::Margin)),
        first(compare_array("pred_range_0_2", Kind::Value)),
        later(compare_array("leaf_range_1_3", Kind::Leaf)),
        near(compare_array("contribs", Kind::Contribs)),
        near(later(compare_array("contribs_range_1_3", Kind::Contribs))),
        near(compare_array("interactions", Kind::Interactions)),
        approximate(compare_array("approx_contribs", Kind::Contribs)),
        approximate(compare_array("approx_interactions", Kind::Interactions)),
        based(compare_array("margin_with_base_margin", Kind::Margin)),
        based(compare_array("pred_with_base_margin", Kind::Value)),
        near(based(compare_array(
            "contribs_with_base_margin",
            Kind::Contribs,
        ))),
        Comparison {
            rows: "X_inf",
            ..compare_array("inf_margin_inplace", Kind::Margin)
        },
    ]
}

fn predict_values(
    predictor: &Predictor<'_>,
    model: &Trained,
    comparison: &Comparison,
    rows: usize,
) -> Vec<f64> {
    let x = model.array(comparison.rows).expect("rows");
    let x = Array {
        shape: vec![rows, x.width()],
        data: x.data[..rows * x.width()].to_vec(),
        is_f32: x.is_f32,
    };
    let base = comparison.has_base_margin.then(|| {
        let base = model.array("base_margin_in").expect("base margins");
        base.as_f32()[..rows * base.width()].to_vec()
    });
    let options = PredictionOptions {
        iterations: comparison.iterations.clone(),
        base_margin: base.as_deref(),
    };
    let mut width = predictor.output_width(comparison.kind);
    if let (Kind::Leaf, Some(range)) = (comparison.kind, &comparison.iterations) {
        width = width / predictor.iterations() * range.len();
    }
    let length = rows * width;
    let (mut f32s, mut f64s, mut i32s) = (vec![0.0; length], vec![0.0; length], vec![0; length]);
    let out = match predictor.output_element(comparison.kind) {
        ElementType::F32 => OutputMut::F32(&mut f32s),
        ElementType::F64 => OutputMut::F64(&mut f64s),
        ElementType::I32 => OutputMut::I32(&mut i32s),
    };
    let x_f32 = x.as_f32();
    let input = if x.is_f32 {
        Rows::F32(&x_f32)
    } else {
        Rows::F64(&x.data)
    };
    let mut scratch = PredictScratch::default();
    let result = match comparison.is_approximate {
        true => predictor.predict_approx(comparison.kind, input, &options, out, &mut scratch),
        false => predictor.predict_with(comparison.kind, input, &options, out, &mut scratch),
    };
    result.unwrap_or_else(|error| panic!("{} {}: {error}", model.name, comparison.array));
    match predictor.output_element(comparison.kind) {
        ElementType::F32 => f32s.into_iter().map(f64::from).collect(),
        ElementType::F64 => f64s,
        ElementType::I32 => i32s.into_iter().map(f64::from).collect(),
    }
}

/// Returns whether the library itself behaves differently. XGBoost supports SHAP values only for
/// ranges that start at the first iteration; before 3.4 its DART did not reject other ranges but
/// started at the first iteration. In-place prediction of DART sums in another order.
fn is_exception(model: &Trained, comparison: &Comparison) -> bool {
    let is_dart = model.facts["booster"] == "dart";
    let is_range =
        comparison.array == "contribs_range_1_3" && !model.name.starts_with("xgboost-3.4");
    is_dart && (is_range || comparison.array == "inf_margin_inplace")
}

/// Returns the allowed distance. scikit-learn uses numpy's vectorized exponential, which differs
/// from the C library's in the last place on some cpus; everything else of scikit-learn is exact.
fn tolerance(model: &Trained, comparison: &Comparison) -> f64 {
    let is_exponential =
        ["boosting_classes", "hist_poisson", "hist_classes"].contains(&model.kind());
    match model.name.starts_with("sklearn") && comparison.array == "pred" && is_exponential {
        true => 4.0 * f64::EPSILON,
        false => comparison.tolerance,
    }
}

/// Returns the first difference of a prediction, if any.
fn mismatch(
    model: &Trained,
    comparison: &Comparison,
    got: &[f64],
    expected: &Array,
) -> Option<String> {
    let label = format!("{} {}", model.name, comparison.array);
    if got.len() != expected.data.len() {
        return Some(format!(
            "{label}: {} values, shape {:?}",
            got.len(),
            expected.shape
        ));
    }
    let width = expected.width();
    for (index, (got, expected_value)) in got.iter().zip(&expected.data).enumerate() {
        let row = &expected.data[index / width * width..][..width];
        let scale = row.iter().fold(1.0_f64, |largest, x| largest.max(x.abs()));
        let is_equal = got == expected_value || got.is_nan() && expected_value.is_nan();
        if !is_equal && (got - expected_value).abs() > tolerance(model, comparison) * scale
            || got.is_nan() != expected_value.is_nan()
        {
            return Some(format!(
                "{label}[{}, {}]: {got} for {expected_value}",
                index / width,
                index % width
            ));
        }
    }
    None
}

fn check(model: &Trained, mismatches: &mut Vec<String>) -> usize {
    let mut compared = 0;
    for (file, bytes) in &model.files {
        let parsed = match Model::parse(bytes) {
            Ok(parsed) => parsed,
            Err(error) => {
                mismatches.push(format!("{} {file}: {error}", model.name));
                continue;
            }
        };
        let image = Image::compile(&parsed);
        let predictor = Predictor::open(image.bytes()).expect("a fresh image");
        for comparison in comparisons() {
            let Some(expected) = model.array(comparison.array) else {
                continue;
            };
            // LightGBM truncates a range at the end of the model; here it is an error
            // (`predict_zoo`).
            let end = comparison.iterations.as_ref().map_or(0, |range| range.end);
            if end > predictor.iterations() || is_exception(model, &comparison) {
                continue;
            }
            let got = predict_values(&predictor, model, &comparison, expected.shape[0]);
            mismatches.extend(mismatch(model, &comparison, &got, expected));
            compared += 1;
        }
    }
    compared
}

#[test]
fn predictions_are_bit_equal_to_every_version_of_a_library() {
    let mut mismatches = Vec::new();
    let mut compared = 0;
    for archive in archives() {
        for model in models(&archive) {
            if model.array("pred").is_some() {
                compared += check(&model, &mut mismatches);
            }
        }
    }
    assert!(
        mismatches.is_empty(),
        "{} of {compared}:\n{}",
        mismatches.len(),
        mismatches.join("\n")
    );
    assert!(compared > 4800, "{compared} comparisons");
}

#[test]
fn unsupported_boosters_are_rejected_by_name() {
    let mut refused = 0;
    for archive in archives() {
        for model in models(&archive) {
            for (file, bytes) in model.files.iter().filter(|_| model.array("pred").is_none()) {
                match Model::parse(bytes) {
                    Err(ModelError::Unsupported(reason)) => {
                        let is_named =
                            reason.contains("gblinear") || reason.contains("linear_tree");
                        assert!(is_named, "{reason}");
                        refused += 1;
                    }
                    other => panic!("{} {file}: {other:?}", model.name),
                }
            }
        }
    }
    assert!(refused >= 9, "{refused}");
}

#[test]
fn the_best_iteration_of_every_version_is_found() {
    let mut found = 0;
    for archive in archives() {
        for model in models(&archive) {
            let Some(best) = model.facts["best_iteration"].as_u64() else {
                continue;
            };
            for (_, bytes) in &model.files {
                let parsed = Model::parse(bytes).expect("a model");
                assert_eq!(parsed.library(), Library::Xgboost);
                assert_eq!(
                    parsed.parts().best_iteration,
                    Some(best as usize),
                    "{}",
                    model.name
                );
                let image = Image::compile(&parsed);
                let predictor = Predictor::open(image.bytes()).expect("a fresh image");
                let comparison = Comparison {
                    iterations: Some(0..best as usize + 1),
                    ..compare_array("pred_best", Kind::Value)
                };
                let expected = model.array("pred_best").expect("an array");
                let got = predict_values(&predictor, &model, &comparison, expected.shape[0]);
                assert_eq!(mismatch(&model, &comparison, &got, expected), None);
                found += 1;
            }
        }
    }
    assert!(found >= 7, "{found}");
}

#[test]
fn an_approximation_is_rejected_where_the_library_has_none() {
    for (archive, name, kind, message) in [
        (
            "lightgbm-4.7.0",
            "binary",
            Kind::Contribs,
            "only XGBoost has approximate contributions",
        ),
        (
            "xgboost-3.4.1",
            "vector_target",
            Kind::Contribs,
            "the leaves of its trees are vectors",
        ),
        (
            "xgboost-3.4.1",
            "logistic",
            Kind::Margin,
            "only contributions and interactions",
        ),
    ] {
        let model = models(archive)
            .into_iter()
            .find(|model| model.kind() == name);
        let model = model.expect("a model");
        let image = Image::compile(&Model::parse(&model.files[0].1).expect("a model"));
        let predictor = Predictor::open(image.bytes()).expect("a fresh image");
        let (options, mut scratch) = (PredictionOptions::default(), PredictScratch::default());
        let out = OutputMut::F32(&mut []);
        let result = predictor.predict_approx(kind, Rows::F32(&[]), &options, out, &mut scratch);
        let error = result.expect_err("no approximation").to_string();
        assert!(error.contains(message), "{error}");
    }
}
