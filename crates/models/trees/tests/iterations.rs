//! Selection of iterations before a model is compiled, compared with the predictions of the
//! libraries' classes: models with early stopping, saved with each version in the usual ways
//! (`tests/data/models/iterations`).

// A corrupt archive stops the tests.
#![allow(clippy::expect_used, clippy::panic)]

mod zoo;

use albacore_trees::{
    ElementType, Image, Iterations, IterationsError, Kind, Library, Model, OutputMut,
    PredictScratch, Predictor, Rows,
};
use zoo::Array;
use zoo::archives::{Trained, archives_of, models_of};

/// Tolerance of SHAP values: the libraries sum in `f32`, LightGBM with terms in `f64`.
const SHAP: f64 = 4e-6;

fn trained() -> Vec<Trained> {
    let archives = archives_of("iterations");
    assert_eq!(archives.len(), 7);
    let models = archives.iter().map(|name| models_of("iterations", name));
    models.flatten().collect()
}

/// Returns the predictions of a model for the rows, and the width of a row.
fn predict_values(model: &Model, kind: Kind, x: &Array) -> Vec<f64> {
    let image = Image::compile(model);
    let predictor = Predictor::open(image.bytes()).expect("a fresh image");
    let length = x.shape[0] * predictor.output_width(kind);
    let (mut f32s, mut f64s, mut i32s) = (vec![0.0; length], vec![0.0; length], vec![0; length]);
    let out = match predictor.output_element(kind) {
        ElementType::F32 => OutputMut::F32(&mut f32s),
        ElementType::F64 => OutputMut::F64(&mut f64s),
        ElementType::I32 => OutputMut::I32(&mut i32s),
    };
    let x_f32 = x.as_f32();
    let rows = match model.library() {
        Library::Xgboost => Rows::F32(&x_f32),
        Library::Lightgbm | Library::Sklearn => Rows::F64(&x.data),
    };
    let result = predictor.predict(kind, rows, out, &mut PredictScratch::default());
    result.expect("a kind that the model gives");
    match predictor.output_element(kind) {
        ElementType::F32 => f32s.into_iter().map(f64::from).collect(),
        ElementType::F64 => f64s,
        ElementType::I32 => i32s.into_iter().map(f64::from).collect(),
    }
}

/// Compares every array of the library whose name has this suffix; returns the number of arrays.
fn compare(trained: &Trained, ending: &str, chosen: Iterations) -> usize {
    let x = trained.array("X").expect("rows");
    let mut compared = 0;
    for (file, bytes) in &trained.files {
        let model = Model::parse(bytes).expect("a model");
        let model = model.with_iterations(chosen).expect("in the file");
        for (name, kind, tolerance) in [
            ("margin", Kind::Margin, 0.0),
            ("pred", Kind::Value, 0.0),
            ("leaf", Kind::Leaf, 0.0),
            ("contribs", Kind::Contribs, SHAP),
            ("interactions", Kind::Interactions, SHAP),
        ] {
            let Some(expected) = trained.array(&format!("{name}{ending}")) else {
                continue;
            };
            let got = predict_values(&model, kind, x);
            let label = format!("{} {file} {name}{ending}", trained.name);
            assert_eq!(got.len(), expected.data.len(), "{label}: shape");
            for (at, (got, expected)) in got.iter().zip(&expected.data).enumerate() {
                let is_near = (got - expected).abs() <= tolerance * expected.abs().max(1.0);
                assert!(is_near, "{label} [{at}]: {got} {expected}");
            }
            compared += 1;
        }
    }
    compared
}

#[test]
fn a_file_predicts_as_the_object_that_saved_it() {
    let mut compared = 0;
    for trained in trained() {
        compared += compare(&trained, "", Iterations::AsSaved);
        let model = Model::parse(&trained.files[0].1).expect("a model");
        let in_file = model.iterations();
        assert_eq!(trained.facts["iterations"].as_u64(), Some(in_file as u64));
        let best = trained.facts["best"].as_u64().map(|best| best as usize);
        assert_eq!(model.parts().best_iteration, best, "{}", trained.name);
        let is_best = trained.facts["is_saved_by_sklearn"] == true;
        let model = model.with_iterations(Iterations::AsSaved).expect("a model");
        let range = model.iteration_range();
        let end = best.filter(|_| is_best).map_or(in_file, |best| best + 1);
        let found = (range.begin, range.end, range.in_file, range.best);
        assert_eq!(found, (0, end, in_file, best), "{}", trained.name);
        // A user who selects no iterations gets a notice about the default.
        let notice = model.iterations_notice(range);
        assert_eq!(notice.is_some(), best.is_some(), "{}", trained.name);
        if let (Some(notice), Some(best)) = (notice, best) {
            let other = if is_best { "All" } else { "Best" };
            for part in [
                &format!("best_iteration is {best}"),
                other,
                &range.to_string(),
            ] {
                assert!(notice.contains(part), "{notice}");
            }
        }
    }
    assert!(compared >= 250, "{compared}");
}

#[test]
fn the_best_iterations_and_a_range_predict_as_in_the_library() {
    let (mut best, mut ranges) = (0, 0);
    for trained in trained() {
        if trained.facts["best"].is_u64() {
            best += compare(&trained, "_best", Iterations::Best);
        }
        let range = Iterations::Range { begin: 1, end: 3 };
        ranges += compare(&trained, "_range_1_3", range);
    }
    assert!(best >= 60 && ranges >= 150, "{best} {ranges}");
}

#[test]
fn iterations_outside_of_the_file_are_rejected_with_a_remedy() {
    let all = trained();
    let model = |name: &str| {
        let trained = all.iter().find(|trained| trained.name == name);
        Model::parse(&trained.expect(name).files[0].1).expect("a model")
    };
    let xgboost = || model("xgboost-3.2.0/multi");
    let lightgbm = || model("lightgbm-4.7.0/multi");
    let refused = |model: Model, chosen| {
        let refused = model.with_iterations(chosen).expect_err("not in the file");
        (refused.to_string(), refused)
    };
    let range = |begin, end| Iterations::Range { begin, end };
    let (text, error) = refused(lightgbm(), Iterations::Best);
    assert!(matches!(error, IterationsError::NoBest { in_file: 3, .. }));
    assert!(text.contains("LightGBM writes none") && text.contains("choose All or a range"));
    for (begin, end) in [(2, 2), (3, 2), (3, 0), (0, 0)] {
        let (text, error) = refused(xgboost(), range(begin, end));
        assert!(matches!(error, IterationsError::Empty { in_file: 11, .. }));
        assert!(text.contains("end must be above begin"), "{text}");
    }
    for (begin, end) in [(0, 12), (10, usize::MAX), (11, 12)] {
        let (text, error) = refused(xgboost(), range(begin, end));
        assert!(matches!(error, IterationsError::Beyond { in_file: 11, .. }));
        assert!(text.contains("an end of at most 11"), "{text}");
    }
    let whole = xgboost().with_iterations(range(0, 11)).expect("all of it");
    assert_eq!((whole.iterations(), whole.parts().trees.len()), (11, 33));
    let last = xgboost().with_iterations(range(10, 11)).expect("the last");
    assert_eq!((last.iterations(), last.parts().trees.len()), (1, 3));
}

/// Returns the model of a JSON file of the archive with another best iteration.
fn with_best(best: &str) -> Result<Model, String> {
    let all = trained();
    let trained = all.iter().find(|it| it.name == "xgboost-3.2.0/multi");
    let files = &trained.expect("an archive").files;
    let (_, json) = files
        .iter()
        .find(|(name, _)| name.ends_with(".json"))
        .expect("JSON");
    let mut file: serde_json::Value = serde_json::from_slice(json).expect("JSON");
    file["learner"]["attributes"]["best_iteration"] = best.into();
    let bytes = serde_json::to_vec(&file).expect("JSON");
    let model = Model::parse(&bytes).map_err(|error| error.to_string())?;
    let model = model.with_iterations(Iterations::AsSaved);
    model.map_err(|error| error.to_string())
}

#[test]
fn a_best_iteration_outside_of_the_file_is_rejected() {
    assert_eq!(with_best("10").map(|it| it.iterations()), Ok(11));
    // The best iteration is the last, so there is no notice.
    assert_eq!(
        with_best("10").map(|it| it.iterations_notice(it.iteration_range())),
        Ok(None)
    );
    let beyond = with_best("11").expect_err("beyond the end");
    assert!(
        beyond.contains("best_iteration is 11, but it holds 11"),
        "{beyond}"
    );
    // Versions before 2 write -1 for a model without trees, which means none.
    let none = with_best("-1").map(|it| (it.parts().best_iteration, it.iterations()));
    assert_eq!(none, Ok((None, 11)));
    for wrong in ["-2", "best", "1.5", ""] {
        let refused = with_best(wrong).expect_err("no count");
        assert!(
            refused.contains("learner.attributes.best_iteration"),
            "{refused}"
        );
    }
}

#[test]
fn feature_names_and_types_are_those_of_the_file() {
    let json = |names: &str, types: &str| {
        let all = trained();
        let trained = all.iter().find(|it| it.name == "xgboost-3.2.0/multi");
        let files = &trained.expect("an archive").files;
        let (_, json) = files
            .iter()
            .find(|(name, _)| name.ends_with(".json"))
            .expect("JSON");
        let mut file: serde_json::Value = serde_json::from_slice(json).expect("JSON");
        file["learner"]["feature_names"] = serde_json::from_str(names).expect("JSON");
        file["learner"]["feature_types"] = serde_json::from_str(types).expect("JSON");
        Model::parse(&serde_json::to_vec(&file).expect("JSON")).map_err(|error| error.to_string())
    };
    let model = json(r#"["a b","c","d","e"]"#, r#"["float","int","i","q"]"#).expect("a model");
    assert_eq!(model.parts().feature_names, ["a b", "c", "d", "e"]);
    assert_eq!(model.parts().feature_types, ["float", "int", "i", "q"]);
    let none = json("[]", "[]").expect("a model");
    assert!(none.parts().feature_names.is_empty() && none.parts().feature_types.is_empty());
    for (names, types, path) in [
        (
            r#"["a","b"]"#,
            "[]",
            "feature_names: 2 entries for 4 features",
        ),
        ("[]", r#"["q"]"#, "feature_types: 1 entries for 4 features"),
    ] {
        let refused = json(names, types).expect_err("not one for each feature");
        assert!(refused.contains(path), "{refused}");
    }
    let categorical = zoo::sample("lgb_cat_onehot");
    let (_, bytes) = categorical.models().next().expect("a model file");
    let model = Model::parse(&bytes).expect("a model");
    assert_eq!(model.parts().feature_names[..2], ["Column_0", "Column_1"]);
    assert_eq!(
        model.parts().feature_types[..2],
        ["categorical", "numerical"]
    );
    let partition = zoo::sample("xgb_cat_partition");
    for (_, bytes) in partition.models() {
        let model = Model::parse(&bytes).expect("a model");
        assert_eq!(model.parts().feature_types[..2], ["c", "q"]);
    }
}
