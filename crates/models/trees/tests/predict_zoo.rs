//! Margins, values and leaves on the model zoo: bit-identical to the training libraries, from every
//! file format, in batches of any size.
//!
//! Values are compared bit for bit, too, because both use the exponential function of the C
//! library. On a machine whose C library rounds differently, adjust [`VALUE_ULPS`].

// A corrupt zoo stops the tests.
#![allow(clippy::expect_used, clippy::panic)]

mod zoo;

use std::ops::Range;

use albacore_trees::{
    ElementType, Image, Iterations, Kernel, Kind, Model, ModelError, OutputMut, PredictError,
    PredictScratch, PredictionOptions, Predictor, Rows,
};
use zoo::{Array, Sample};

/// Rows per call; the last is all rows.
const BATCHES: [usize; 3] = [1, 7, usize::MAX];

/// Allowed distance between a value and the library's.
const VALUE_ULPS: u64 = 0;

/// XGBoost's in-place DART prediction sums differently: it subtracts the base margin from the sum
/// of each tree and adds it again, so the last bits differ from its own DMatrix prediction.
const DART_INPLACE_ULPS: u64 = 8;

/// Unsupported: gblinear and linear trees, which have no leaf values.
fn is_unsupported(sample: &Sample) -> bool {
    sample.meta["expect_unsupported"] == true || sample.meta["booster"] == "gblinear"
}

/// Returns the samples with supported models.
fn supported() -> impl Iterator<Item = Sample> {
    zoo::samples()
        .into_iter()
        .filter(|sample| !is_unsupported(sample))
}

fn iterations(range: Range<usize>) -> PredictionOptions<'static> {
    PredictionOptions {
        iterations: Some(range),
        base_margin: None,
    }
}

/// Returns the predictions of the sample's model for the rows `x`. All files, batch sizes and
/// kernels must agree bit for bit.
fn predict(sample: &Sample, kind: Kind, x: &Array, options: &PredictionOptions<'_>) -> Vec<f64> {
    let mut predictions = Vec::new();
    for (path, bytes) in sample.models() {
        let model = Model::parse(&bytes).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let image = Image::compile(&model);
        let predictor = Predictor::open(image.bytes()).expect("a fresh image");
        for batch in BATCHES {
            predictions.push(in_batches(&predictor, kind, x, options, batch));
        }
        for predictor in Kernel::ALL.map(|kernel| predictor.with_kernel(kernel)) {
            let prediction = predictor.map(|it| in_batches(&it, kind, x, options, usize::MAX));
            predictions.extend(prediction);
        }
        if let Some(Range { start, end }) = options.iterations {
            // The same trees, selected before the model is compiled.
            let chosen = Iterations::Range { begin: start, end };
            let model = model.with_iterations(chosen).expect("in the file");
            let image = Image::compile(&model);
            let predictor = Predictor::open(image.bytes()).expect("a fresh image");
            let whole = PredictionOptions {
                iterations: None,
                base_margin: options.base_margin,
            };
            for predictor in Kernel::ALL.map(|kernel| predictor.with_kernel(kernel)) {
                let prediction = predictor.map(|it| in_batches(&it, kind, x, &whole, usize::MAX));
                predictions.extend(prediction);
            }
        }
    }
    let bits = |prediction: &[f64]| {
        prediction
            .iter()
            .map(|value| value.to_bits())
            .collect::<Vec<_>>()
    };
    let first = bits(&predictions[0]);
    assert!(
        predictions
            .iter()
            .all(|prediction| bits(prediction) == first),
        "{}: files differ",
        sample.name
    );
    predictions.swap_remove(0)
}

fn in_batches(
    predictor: &Predictor<'_>,
    kind: Kind,
    x: &Array,
    options: &PredictionOptions<'_>,
    batch: usize,
) -> Vec<f64> {
    let mut scratch = PredictScratch::default();
    let mut prediction = Vec::new();
    let batch = batch.min(x.shape[0]);
    let groups = predictor.groups();
    for (index, rows) in x.data.chunks(batch * predictor.features()).enumerate() {
        let count = rows.len() / predictor.features();
        let first = index * batch * groups;
        let base_margin = options
            .base_margin
            .map(|all| &all[first..first + count * groups]);
        let options = PredictionOptions {
            iterations: options.iterations.clone(),
            base_margin,
        };
        prediction.extend(call(
            predictor,
            kind,
            rows,
            x.is_f32,
            &options,
            &mut scratch,
        ));
    }
    prediction
}

fn call(
    predictor: &Predictor<'_>,
    kind: Kind,
    rows: &[f64],
    is_f32: bool,
    options: &PredictionOptions<'_>,
    scratch: &mut PredictScratch,
) -> Vec<f64> {
    let rows_f32: Vec<f32> = rows.iter().map(|&x| x as f32).collect();
    let input = if is_f32 {
        Rows::F32(&rows_f32)
    } else {
        Rows::F64(rows)
    };
    let length = rows.len() / predictor.features() * predictor.output_width(kind);
    let (mut f32s, mut f64s, mut i32s) = (
        vec![f32::NAN; length],
        vec![f64::NAN; length],
        vec![-1; length],
    );
    let out = match predictor.output_element(kind) {
        ElementType::F32 => OutputMut::F32(&mut f32s),
        ElementType::F64 => OutputMut::F64(&mut f64s),
        ElementType::I32 => OutputMut::I32(&mut i32s),
    };
    predictor
        .predict_with(kind, input, options, out, scratch)
        .expect("supported");
    match predictor.output_element(kind) {
        ElementType::F32 => f32s.into_iter().map(f64::from).collect(),
        ElementType::F64 => f64s,
        ElementType::I32 => i32s.into_iter().map(f64::from).collect(),
    }
}

/// Returns the largest distance in units of the last place of the expected array's type.
fn ulps(got: &[f64], expected: &Array) -> u64 {
    assert_eq!(got.len(), expected.data.len());
    let distance = |(&got, &expected_value): (&f64, &f64)| {
        if expected.is_f32 {
            ordered(
                i64::from((got as f32).to_bits() as i32),
                i64::from(i32::MIN),
            )
            .abs_diff(ordered(
                i64::from((expected_value as f32).to_bits() as i32),
                i64::from(i32::MIN),
            ))
        } else {
            ordered(got.to_bits() as i64, i64::MIN)
                .abs_diff(ordered(expected_value.to_bits() as i64, i64::MIN))
        }
    };
    got.iter()
        .zip(&expected.data)
        .map(distance)
        .max()
        .unwrap_or(0)
}

/// Maps the bits of a float to an integer of the same order.
fn ordered(bits: i64, sign: i64) -> i64 {
    if bits < 0 {
        sign.wrapping_sub(bits)
    } else {
        bits
    }
}

/// Compares one array of the sample, if present, with the model's predictions for the rows `x`.
fn check(
    sample: &Sample,
    name: &str,
    kind: Kind,
    x: &str,
    options: &PredictionOptions<'_>,
) -> Option<u64> {
    let expected = sample.array(name)?;
    let x = sample.array(x)?;
    Some(ulps(&predict(sample, kind, x, options), expected))
}

/// Like [`check`], for all samples with this array; the distance must not exceed the bound.
fn check_all(
    name: &str,
    kind: Kind,
    x: &str,
    options: &PredictionOptions<'_>,
    bound: u64,
) -> usize {
    let mut count = 0;
    for sample in supported() {
        if let Some(distance) = check(&sample, name, kind, x, options) {
            let is_dart = x == "X_inf" && sample.meta["booster"] == "dart";
            let bound = if is_dart { DART_INPLACE_ULPS } else { bound };
            assert!(
                distance <= bound,
                "{name} of {}: {distance} ulps",
                sample.name
            );
            count += 1;
        }
    }
    count
}

#[test]
fn margins_are_bit_equal_to_the_library_on_every_model() {
    let all = PredictionOptions::default();
    assert_eq!(
        check_all("margin", Kind::Margin, "X", &all, 0),
        supported().count()
    );
}

#[test]
fn values_are_bit_equal_to_the_library_on_every_model() {
    let all = PredictionOptions::default();
    assert_eq!(
        check_all("pred", Kind::Value, "X", &all, VALUE_ULPS),
        supported().count()
    );
}

#[test]
fn leaves_have_the_numbers_of_the_library() {
    let all = PredictionOptions::default();
    assert_eq!(
        check_all("leaf", Kind::Leaf, "X", &all, 0),
        supported().count()
    );
}

#[test]
fn a_range_of_iterations_predicts_as_in_the_library() {
    assert!(check_all("margin_range_1_3", Kind::Margin, "X", &iterations(1..3), 0) > 20);
    assert!(
        check_all(
            "pred_range_0_2",
            Kind::Value,
            "X",
            &iterations(0..2),
            VALUE_ULPS
        ) > 20
    );
    assert!(check_all("margin_it_0_2", Kind::Margin, "X", &iterations(0..2), 0) > 10);
    assert!(check_all("margin_it_1_2", Kind::Margin, "X", &iterations(1..3), 0) > 10);
}

#[test]
fn the_best_iteration_is_read_and_can_be_chosen() {
    let sample = zoo::sample("xgb_early_stop");
    for (_, bytes) in sample.models() {
        assert_eq!(
            Model::parse(&bytes)
                .expect("a model")
                .parts()
                .best_iteration,
            Some(5)
        );
    }
    assert_eq!(
        check(&sample, "margin_best", Kind::Margin, "X", &iterations(0..6)),
        Some(0)
    );
    assert_eq!(
        check(&sample, "pred_best", Kind::Value, "X", &iterations(0..6)),
        Some(0)
    );
}

#[test]
fn a_base_margin_of_the_caller_replaces_the_base_score() {
    let mut count = 0;
    for sample in supported() {
        let Some(base) = sample.array("base_margin_in") else {
            continue;
        };
        let base = base.as_f32();
        let options = PredictionOptions {
            iterations: None,
            base_margin: Some(&base),
        };
        let distance = check(
            &sample,
            "margin_with_base_margin",
            Kind::Margin,
            "X",
            &options,
        );
        assert_eq!(distance, Some(0), "{}", sample.name);
        count += 1;
    }
    assert!(count > 20);
}

#[test]
fn infinities_are_compared_with_thresholds_like_other_numbers() {
    let all = PredictionOptions::default();
    assert!(check_all("inf_margin_inplace", Kind::Margin, "X_inf", &all, 0) > 20);
}

#[test]
fn unknown_categories_are_in_no_set() {
    let all = PredictionOptions::default();
    assert_eq!(
        check_all("invalid_margin_dmatrix", Kind::Margin, "X_invalid", &all, 0),
        2
    );
}

#[test]
fn outputs_have_the_shapes_of_the_library() {
    for sample in supported() {
        let (_, bytes) = sample.models().next().expect("a model file");
        let image = Image::compile(&Model::parse(&bytes).expect("a model"));
        let predictor = Predictor::open(image.bytes()).expect("a fresh image");
        for (name, kind) in [
            ("pred", Kind::Value),
            ("margin", Kind::Margin),
            ("leaf", Kind::Leaf),
            ("contribs", Kind::Contribs),
            ("interactions", Kind::Interactions),
        ] {
            if let Some(array) = sample.array(name) {
                let shape = predictor.output_row_shape(kind);
                assert_eq!(shape, array.shape[1..], "{name} of {}", sample.name);
            }
        }
    }
}

#[test]
fn rows_of_the_other_precision_are_converted_as_the_library_does() {
    for (name, is_f32) in [("xgb_cat_partition", false), ("lgb_zero_as_missing", true)] {
        let sample = zoo::sample(name);
        let x = sample.array("X").expect("rows");
        let rounded: Vec<f64> = x.data.iter().map(|&x| f64::from(x as f32)).collect();
        let (_, bytes) = sample.models().next().expect("a model file");
        let image = Image::compile(&Model::parse(&bytes).expect("a model"));
        let predictor = Predictor::open(image.bytes()).expect("a fresh image");
        for kind in Kind::ALL {
            let predict = |x: &[f64], is_f32: bool| {
                let mut scratch = PredictScratch::default();
                call(
                    &predictor,
                    kind,
                    x,
                    is_f32,
                    &PredictionOptions::default(),
                    &mut scratch,
                )
            };
            assert_eq!(
                predict(&rounded, is_f32),
                predict(&rounded, !is_f32),
                "{name} {kind}"
            );
        }
    }
}

#[test]
fn dart_weights_in_the_layout_of_version_3_4_are_read() {
    let sample = zoo::sample("xgb_dart_multi");
    let json = sample
        .models()
        .find(|(path, _)| path.extension().is_some_and(|it| it == "json"));
    let (_, bytes) = json.expect("a JSON file");
    let mut file: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    let booster = &mut file["learner"]["gradient_booster"];
    let mut model = booster["gbtree"]["model"].take();
    model["weight_drop"] = booster["weight_drop"].take();
    *booster = serde_json::json!({"name": "gbtree", "model": model});
    let model = Model::parse(file.to_string().as_bytes()).expect("a model");
    let image = Image::compile(&model);
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let x = sample.array("X").expect("rows");
    let margins = in_batches(
        &predictor,
        Kind::Margin,
        x,
        &PredictionOptions::default(),
        usize::MAX,
    );
    assert_eq!(ulps(&margins, sample.array("margin").expect("margins")), 0);
}

#[test]
fn unsupported_models_are_rejected_with_the_reason() {
    let refused: Vec<Sample> = zoo::samples().into_iter().filter(is_unsupported).collect();
    assert_eq!(refused.len(), 2);
    for sample in refused {
        for (path, bytes) in sample.models() {
            match Model::parse(&bytes) {
                Err(ModelError::Unsupported(reason)) => {
                    let is_named = reason.contains("gblinear") || reason.contains("linear_tree");
                    assert!(is_named, "{reason}");
                }
                other => panic!("{path:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_call_of_the_wrong_shape_is_rejected_with_the_expected_shape() {
    let sample = zoo::sample("lgb_multiclass");
    let (_, bytes) = sample.models().next().expect("a model file");
    let image = Image::compile(&Model::parse(&bytes).expect("a model"));
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let mut scratch = PredictScratch::default();
    let mut call = |rows: &[f64], options: &PredictionOptions<'_>, out: OutputMut<'_>| {
        predictor.predict_with(Kind::Margin, Rows::F64(rows), options, out, &mut scratch)
    };
    let all = PredictionOptions::default();
    let (row, mut out) = ([0.0; 10], [0.0; 4]);
    assert_eq!(call(&row, &all, OutputMut::F64(&mut out)), Ok(()));
    assert_eq!(call(&[], &all, OutputMut::F64(&mut [])), Ok(()));
    for (result, message) in [
        (
            call(&row[..9], &all, OutputMut::F64(&mut out)),
            "9 values are not a whole number of rows of 10 features",
        ),
        (
            call(&row, &all, OutputMut::F64(&mut out[..3])),
            "the output has 3 values; expected 4 for 1 rows of kind margin",
        ),
        (
            call(&row, &all, OutputMut::F32(&mut [0.0; 4])),
            "kind margin of this model gives float64, not float32",
        ),
        (
            call(&row, &iterations(2..9), OutputMut::F64(&mut out)),
            "iterations 2..9 are not within the model's 6",
        ),
        (
            call(
                &row,
                &PredictionOptions {
                    iterations: None,
                    base_margin: Some(&[0.0; 4]),
                },
                OutputMut::F64(&mut out),
            ),
            "kind margin is not supported for this model: \
             only XGBoost models accept a base margin",
        ),
    ] {
        assert_eq!(
            result.map_err(|error: PredictError| error.to_string()),
            Err(message.into())
        );
    }
}
