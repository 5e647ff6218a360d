//! Edge cases of what each version of a library trains and loads, compared with the results or
//! errors of that version: labels that are all equal, one class, one row, no trees, base scores at
//! the boundary of each objective, categories that were not seen in training.

// A corrupt archive stops the tests.
#![allow(clippy::expect_used, clippy::panic)]

mod zoo;

use std::fs::File;
use std::io::Read;

use albacore_trees::{
    ElementType, Image, Kind, Library, Model, OutputMut, PredictScratch, PredictionOptions,
    Predictor, Rows,
};
use serde_json::Value;
use zip::ZipArchive;

/// Tolerance of sums that the libraries compute in `f32` (SHAP values, and margins before 1.4),
/// relative to the largest magnitude of the row.
const SUMS: f64 = 4e-6;

/// Returns the archives that `edges.py` wrote with each version: name, models and cases.
fn archives() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(zoo::folder().join("edges")).expect("the archives");
    let mut archives: Vec<(String, Value)> = files
        .map(|file| {
            let path = file.expect("a file").path();
            let mut zip = ZipArchive::new(File::open(&path).expect("archive")).expect("zip");
            let mut text = String::new();
            let mut member = zip.by_name("edges.json").expect("its member");
            member.read_to_string(&mut text).expect("UTF-8");
            let name = path.file_stem().expect("a name").to_string_lossy();
            let name = name.into_owned();
            (name, serde_json::from_str(&text).expect("JSON"))
        })
        .collect();
    archives.sort_by(|a, b| a.0.cmp(&b.0));
    archives
}

fn cases(archive: &Value) -> &[Value] {
    archive["cases"].as_array().expect("a list of cases")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("a text")
}

/// Returns the model of a case, with its base score.
fn model_of(archive: &Value, case: &Value) -> String {
    let model = text(&archive["models"], text(case, "model"));
    let Some(score) = case["base_score"].as_str() else {
        return model.to_owned();
    };
    let mut parsed: Value = serde_json::from_str(model).expect("JSON");
    parsed["learner"]["learner_model_param"]["base_score"] = score.into();
    parsed.to_string()
}

fn numbers(value: &Value) -> Vec<f64> {
    let items = value.as_str().expect("numbers").split(' ');
    items.map(|item| item.parse().expect("a number")).collect()
}

fn predict_values(
    predictor: &Predictor<'_>,
    library: Library,
    rows: &[f64],
    kind: Kind,
) -> Vec<f64> {
    let count = rows.len() / predictor.features();
    let length = count * predictor.output_width(kind);
    let (mut f32s, mut f64s) = (vec![0.0; length], vec![0.0; length]);
    let out = match predictor.output_element(kind) {
        ElementType::F32 => OutputMut::F32(&mut f32s),
        ElementType::F64 => OutputMut::F64(&mut f64s),
        ElementType::I32 => panic!("leaves are not requested"),
    };
    let rows_f32: Vec<f32> = rows.iter().map(|&x| x as f32).collect();
    let rows = match library {
        Library::Xgboost => Rows::F32(&rows_f32),
        Library::Lightgbm | Library::Sklearn => Rows::F64(rows),
    };
    let (options, mut scratch) = (PredictionOptions::default(), PredictScratch::default());
    predictor
        .predict_with(kind, rows, &options, out, &mut scratch)
        .expect("a prediction");
    match predictor.output_element(kind) {
        ElementType::F32 => f32s.into_iter().map(f64::from).collect(),
        ElementType::F64 | ElementType::I32 => f64s,
    }
}

/// Returns the difference from the library's results for a case, if any.
fn mismatch(model: &Model, case: &Value, are_sums_other: bool) -> Option<String> {
    let image = Image::compile(model);
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let rows = numbers(&case["rows"]);
    for (key, kind) in [
        ("margin", Kind::Margin),
        ("value", Kind::Value),
        ("contribs", Kind::Contribs),
    ] {
        if case[key].is_null() {
            continue;
        }
        let expected = numbers(&case[key]);
        let got = predict_values(&predictor, model.library(), &rows, kind);
        let tolerance = match kind == Kind::Contribs || are_sums_other {
            true => SUMS,
            false => 0.0,
        };
        let width = expected.len() / (rows.len() / predictor.features());
        for (index, (got, expected_value)) in got.iter().zip(&expected).enumerate() {
            let row = &expected[index / width * width..][..width];
            let finite = row.iter().filter(|x| x.is_finite());
            let scale = finite.fold(1.0_f64, |largest, x| largest.max(x.abs()));
            let is_equal = got == expected_value || got.is_nan() && expected_value.is_nan();
            let is_near = (got - expected_value).abs() <= tolerance * scale;
            if !is_equal && !is_near {
                return Some(format!("{key}[{index}]: {got} for {expected_value}"));
            }
        }
        if got.len() != expected.len() {
            return Some(format!(
                "{key}: {} values for {}",
                got.len(),
                expected.len()
            ));
        }
    }
    None
}

#[test]
fn edge_cases_of_every_version_are_predicted_or_rejected_as_by_the_library() {
    let (mut mismatches, mut predicted, mut refused) = (Vec::new(), 0, 0);
    for (name, archive) in archives() {
        let are_sums_other = name == "xgboost-1.2.1";
        for case in cases(&archive) {
            let label = format!("{name} {}", text(case, "name"));
            let model = Model::parse(model_of(&archive, case).as_bytes());
            match (model, case["error"].as_str()) {
                (Ok(model), None) => {
                    let mismatch = mismatch(&model, case, are_sums_other);
                    mismatches.extend(mismatch.map(|it| format!("{label} {it}")));
                    predicted += 1;
                }
                (Err(error), Some(_)) => {
                    let message = error.to_string();
                    assert!(message.contains("base_score: "), "{label}: {message}");
                    refused += 1;
                }
                (Err(error), None) => mismatches.push(format!("{label}: {error}")),
                (Ok(_), Some(error)) => mismatches.push(format!("{label}: not refused: {error}")),
            }
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
    assert!(predicted > 600 && refused > 40, "{predicted}, {refused}");
}

#[test]
fn uncertain_versions_have_a_notice() {
    let notices = |archive: &str, case: &str| {
        let found = archives().into_iter().find(|(name, _)| name == archive);
        let (_, found) = found.expect("an archive");
        let model = text(&found["models"], case);
        let model = Model::parse(model.as_bytes()).expect("a model");
        model.parts().notices.join("\n")
    };
    let old = notices("xgboost-1.2.1", "binary_logitraw");
    assert!(old.contains("XGBoost 1.2.1, older than"), "{old}");
    assert!(old.contains("save_model"), "{old}");
    assert!(old.contains("read as a probability"), "{old}");
    let old = notices("xgboost-1.6.2", "reg_squarederror");
    assert!(old.contains("XGBoost 1.6.2, older than"), "{old}");
    let categories = notices("xgboost-1.7.2", "categories_40_1");
    assert!(categories.contains("not seen in training"), "{categories}");
    assert_eq!(notices("xgboost-1.7.2", "reg_squarederror"), "");
    assert_eq!(notices("xgboost-3.4.1", "binary_logistic"), "");
}

#[test]
fn a_file_without_a_version_is_read_as_the_newest_with_a_notice() {
    let archives = archives();
    let (_, newest) = archives
        .iter()
        .find(|it| it.0 == "xgboost-3.4.1")
        .expect("an archive");
    let mut model: Value = serde_json::from_str(&model_of(
        newest,
        &serde_json::json!({"model": "binary_logistic", "base_score": "[0E0]"}),
    ))
    .expect("JSON");
    model.as_object_mut().expect("an object").remove("version");
    let parsed = Model::parse(model.to_string().as_bytes()).expect("a model");
    assert!(
        parsed.parts().notices[0].contains("has no XGBoost version"),
        "{:?}",
        parsed.parts().notices
    );
    assert!(parsed.parts().base[0].is_finite());
    model["version"] = serde_json::json!([9, 1, 0]);
    let parsed = Model::parse(model.to_string().as_bytes()).expect("a model");
    assert!(
        parsed.parts().notices[0].contains("newer than"),
        "{:?}",
        parsed.parts().notices
    );
}

#[test]
fn rewritten_categorical_splits_take_bounded_memory() {
    let (_, archive) = archives()
        .into_iter()
        .find(|it| it.0 == "xgboost-1.7.2")
        .expect("an archive");
    let text = text(&archive["models"], "categories_40_1");
    let text = text.replace("NaN", "0");
    let mut model: Value = serde_json::from_str(&text).expect("JSON");
    let booster = &mut model["learner"]["gradient_booster"]["model"];
    let mut trees = booster["trees"].as_array().expect("trees").clone();
    // A split whose set ends at the largest category takes 2^19 words.
    for tree in &mut trees {
        for category in tree["categories"].as_array_mut().expect("categories") {
            *category = ((1 << 24) - 1).into();
        }
        for side in tree["default_left"].as_array_mut().expect("sides") {
            *side = 0.into();
        }
    }
    booster["trees"] = vec![trees.clone(); 8].concat().into();
    booster["tree_info"] = vec![0; trees.len() * 8].into();
    let error = Model::parse(model.to_string().as_bytes()).expect_err("too large");
    assert!(
        error.to_string().contains("very large categories"),
        "{error}"
    );
}
