//! Contributions and interactions on the model zoo: at least as exact as the libraries.

// A corrupt zoo stops the tests.
#![allow(clippy::expect_used)]

mod zoo;

use albacore_trees::{
    Image, Kind, Model, OutputMut, PredictScratch, PredictionOptions, Predictor, Rows,
};
use zoo::{Array, Sample};

/// Returns a predictor's results for the first rows of a sample's X, widened to `f64`.
fn explain(model: &[u8], sample: &Sample, kind: Kind, rows: usize) -> Vec<f64> {
    let model = Model::parse(model).expect("a model of the zoo");
    let image = Image::compile(&model);
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let x = sample.array("X").expect("rows");
    let width = predictor.output_width(kind);
    let values = &x.data[..rows * x.width()];
    let mut scratch = PredictScratch::default();
    if x.is_f32 {
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        let mut out = vec![f32::NAN; rows * width];
        let result = predictor.predict(
            kind,
            Rows::F32(&values),
            OutputMut::F32(&mut out),
            &mut scratch,
        );
        result.expect("supported kind");
        out.into_iter().map(f64::from).collect()
    } else {
        let mut out = vec![f64::NAN; rows * width];
        let result = predictor.predict(
            kind,
            Rows::F64(values),
            OutputMut::F64(&mut out),
            &mut scratch,
        );
        result.expect("supported kind");
        out
    }
}

/// Returns the largest difference; the arrays must have equal lengths and no NaN.
fn distance(got: &[f64], expect: &[f64]) -> f64 {
    assert_eq!(got.len(), expect.len());
    let differences = got
        .iter()
        .zip(expect)
        .map(|(got, expect)| (got - expect).abs());
    differences.fold(0.0, |worst, difference| {
        assert!(!difference.is_nan());
        worst.max(difference)
    })
}

fn scale(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0.0, |largest, value| largest.max(value.abs()))
}

/// Returns the smallest error of a library on this sample, from its stored arrays.
fn best_library_distance(sample: &Sample, names: [&str; 2], exact: &Array) -> f64 {
    let given = names.into_iter().filter_map(|name| sample.array(name));
    given
        .map(|array| distance(&array.data, &exact.data))
        .fold(f64::INFINITY, f64::min)
}

#[test]
fn contributions_are_no_farther_from_the_exact_ones_than_the_best_library() {
    let mut judged = 0;
    for sample in zoo::samples() {
        let Some(exact) = sample.array("contribs_f64") else {
            continue;
        };
        let bound = best_library_distance(&sample, ["contribs", "contribs_v34"], exact);
        for (path, model) in sample.models() {
            let got = explain(&model, &sample, Kind::Contribs, exact.shape[0]);
            let error = distance(&got, &exact.data);
            assert!(
                error <= bound,
                "{}: {error:e}, library {bound:e}",
                path.display()
            );
            judged += 1;
        }
    }
    assert!(judged >= 50, "{judged}");
}

#[test]
fn interactions_are_no_farther_from_the_exact_ones_than_the_best_library() {
    let mut judged = 0;
    for sample in zoo::samples() {
        let Some(exact) = sample.array("interactions_f64") else {
            continue;
        };
        let bound = best_library_distance(&sample, ["interactions", "interactions_v34"], exact);
        for (path, model) in sample.models() {
            let got = explain(&model, &sample, Kind::Interactions, exact.shape[0]);
            let error = distance(&got, &exact.data);
            assert!(
                error <= bound,
                "{}: {error:e}, library {bound:e}",
                path.display()
            );
            judged += 1;
        }
    }
    assert!(judged >= 50, "{judged}");
}

#[test]
fn explanations_match_the_library_that_trained_the_model() {
    let mut judged = 0;
    for sample in zoo::samples() {
        if sample.meta["expect_unsupported"] == true {
            continue;
        }
        // XGBoost computes SHAP values in f32, over up to a hundred trees; LightGBM in f64.
        let tolerance = if sample.is_xgboost() { 2e-6 } else { 1e-13 };
        let kinds = [
            (Kind::Contribs, "contribs"),
            (Kind::Contribs, "contribs_v34"),
            (Kind::Interactions, "interactions"),
            (Kind::Interactions, "interactions_v34"),
        ];
        for (kind, name) in kinds {
            let Some(expect) = sample.array(name) else {
                continue;
            };
            for (path, model) in sample.models() {
                let got = explain(&model, &sample, kind, expect.shape[0]);
                let error = distance(&got, &expect.data);
                let bound = tolerance * scale(&expect.data).max(1.0);
                assert!(
                    error <= bound,
                    "{} {name}: {error:e} {bound:e}",
                    path.display()
                );
                judged += 1;
            }
        }
    }
    assert!(judged >= 100, "{judged}");
}

#[test]
fn contributions_of_a_row_sum_to_its_margin() {
    for sample in zoo::samples() {
        if sample.meta["expect_unsupported"] == true {
            continue;
        }
        let margin = sample.array("margin").expect("margins");
        let epsilon = if sample.is_xgboost() {
            f64::from(f32::EPSILON)
        } else {
            f64::EPSILON
        };
        for (path, model) in sample.models() {
            let got = explain(&model, &sample, Kind::Contribs, margin.shape[0]);
            let columns = got.len() / margin.data.len();
            for (row, (parts, margin)) in got.chunks(columns).zip(&margin.data).enumerate() {
                let sum: f64 = parts.iter().sum();
                let rounding = 8.0 * epsilon * parts.iter().map(|part| part.abs()).sum::<f64>();
                let error = (sum - margin).abs();
                assert!(
                    error <= rounding,
                    "{} {row}: {error:e} {rounding:e}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn the_bias_is_bit_equal_to_xgboost_3_4() {
    for sample in zoo::samples() {
        let expect = match sample.meta["version"].as_str() {
            Some("3.4.1") => sample.array("contribs"),
            _ => sample.array("contribs_v34"),
        };
        let Some(expect) = expect else { continue };
        // The weights of dropped trees multiply means in XGBoost and leaves here.
        let ulps = if sample.name.contains("dart") {
            1.0
        } else {
            0.0
        };
        let columns = *expect.shape.last().expect("columns");
        for (path, model) in sample.models() {
            let got = explain(&model, &sample, Kind::Contribs, expect.shape[0]);
            for (got, expect) in got.chunks(columns).zip(expect.data.chunks(columns)) {
                let (got, expect) = (got[columns - 1], expect[columns - 1]);
                let error = (got - expect).abs();
                let bound = ulps * f64::from(f32::EPSILON) * expect.abs();
                assert!(error <= bound, "{}: {got} {expect}", path.display());
            }
        }
    }
}

#[test]
fn a_range_of_iterations_and_a_base_margin_are_explained_like_the_margin() {
    let mut judged = 0;
    for sample in zoo::samples().into_iter().filter(Sample::is_xgboost) {
        let Some(margins) = sample.array("margin_range_1_3") else {
            continue;
        };
        if sample.meta["expect_unsupported"] == true {
            continue;
        }
        let (_, model) = sample.models().next().expect("a model file");
        let image = Image::compile(&Model::parse(&model).expect("a model of the zoo"));
        let predictor = Predictor::open(image.bytes()).expect("a fresh image");
        let x = sample.array("X").expect("rows").as_f32();
        let rows = margins.shape[0];
        let shift = vec![0.5_f32; margins.data.len()];
        let mut out = vec![f32::NAN; rows * predictor.output_width(Kind::Contribs)];
        let columns = out.len() / margins.data.len();
        let mut sums = |base_margin| {
            let options = PredictionOptions {
                iterations: Some(1..3),
                base_margin,
            };
            let (rows, scratch) = (Rows::F32(&x), &mut PredictScratch::default());
            let output = OutputMut::F32(&mut out);
            let result = predictor.predict_with(Kind::Contribs, rows, &options, output, scratch);
            result.expect("a range inside the model");
            let wide = |parts: &[f32]| parts.iter().copied().map(f64::from).sum();
            out.chunks(columns).map(wide).collect::<Vec<f64>>()
        };
        let bound = 8.0 * f64::from(f32::EPSILON) * scale(&margins.data).max(1.0);
        let plain = sums(None);
        assert!(distance(&plain, &margins.data) <= bound, "{}", sample.name);
        let shifted = sums(Some(&shift));
        for (at, (shifted, plain)) in shifted.iter().zip(&plain).enumerate() {
            let base = predictor.base_margins()[at % predictor.groups()];
            assert!(
                (shifted - plain - 0.5 + base).abs() <= bound,
                "{}",
                sample.name
            );
        }
        judged += 1;
    }
    assert!(judged >= 20, "{judged}");
}

#[test]
fn interactions_are_symmetric_and_their_rows_sum_to_the_contributions() {
    for sample in zoo::samples() {
        // One row of the widest model has 49 MB of output; its contributions are tested above.
        if sample.meta["expect_unsupported"] == true || sample.name == "main_large_d6" {
            continue;
        }
        let rows = 2;
        let (_, model) = sample.models().next().expect("a model file");
        let contribs = explain(&model, &sample, Kind::Contribs, rows);
        let matrices = explain(&model, &sample, Kind::Interactions, rows);
        let columns = matrices.len() / contribs.len();
        let epsilon = if sample.is_xgboost() {
            f64::from(f32::EPSILON)
        } else {
            f64::EPSILON
        };
        for (group, matrix) in matrices.chunks(columns * columns).enumerate() {
            for i in 0..columns {
                let row = &matrix[i * columns..][..columns];
                for (j, &cell) in row.iter().enumerate() {
                    assert_eq!(cell.to_bits(), matrix[j * columns + i].to_bits());
                    assert!(cell == 0.0 || (i == columns - 1) == (j == columns - 1));
                }
                let error = (row.iter().sum::<f64>() - contribs[group * columns + i]).abs();
                let rounding = 8.0 * epsilon * row.iter().map(|cell| cell.abs()).sum::<f64>();
                assert!(error <= rounding + 1e-14, "{} {i}: {error:e}", sample.name);
            }
        }
    }
}

#[test]
fn the_widest_model_explains_pairs_of_a_row() {
    let sample = zoo::sample("main_large_d6");
    let (_, model) = sample.models().next().expect("a model file");
    let contribs = explain(&model, &sample, Kind::Contribs, 1);
    let matrices = explain(&model, &sample, Kind::Interactions, 1);
    let columns = 785;
    for (row, contribution) in matrices.chunks(columns).zip(&contribs) {
        assert!((row.iter().sum::<f64>() - contribution).abs() < 1e-6);
    }
}

#[test]
fn every_format_of_a_model_gives_the_same_bits() {
    for sample in zoo::samples() {
        if sample.meta["expect_unsupported"] == true {
            continue;
        }
        let rows = sample.array("X").expect("rows").shape[0];
        let bits = |model: Vec<u8>| -> Vec<u64> {
            let contribs = explain(&model, &sample, Kind::Contribs, rows);
            contribs.into_iter().map(f64::to_bits).collect()
        };
        let given: Vec<Vec<u64>> = sample.models().map(|(_, model)| bits(model)).collect();
        assert!(
            given.windows(2).all(|pair| pair[0] == pair[1]),
            "{}",
            sample.name
        );
    }
}

#[test]
fn a_model_without_cover_is_explained_with_equal_shares() {
    let sample = zoo::sample("xgb_exact");
    let json = sample
        .models()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "json"));
    let (_, json) = json.expect("a JSON model");
    let mut model: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let trees = model["learner"]["gradient_booster"]["model"]["trees"].as_array_mut();
    for tree in trees.expect("trees") {
        for cover in tree["sum_hessian"].as_array_mut().expect("covers") {
            *cover = 0.0.into();
        }
    }
    let margin = sample.array("margin").expect("margins");
    let model = serde_json::to_vec(&model).expect("JSON");
    let got = explain(&model, &sample, Kind::Contribs, margin.shape[0]);
    for (parts, margin) in got.chunks(got.len() / margin.data.len()).zip(&margin.data) {
        assert!((parts.iter().sum::<f64>() - margin).abs() < 1e-5);
    }
}
