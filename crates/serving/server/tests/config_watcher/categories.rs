//! Texts of categories: tables of the model file, their replacement by the settings, and both after
//! a takeover by the next front.

use std::time::{Duration, Instant};

use albacore_settings::{Policy, Source};
use serde_json::{Value, json};

use super::running::{PATIENCE, Running, kill, zoo};
use super::{Volume, model, settings, start, until, until_in_force};

/// The colors in the file, by code, and other names for them.
const COLORS: [&str; 6] = ["red", "a, b", "blue", "[x]", "q\"\\", "green"];
const NAMES: [&str; 6] = ["rot", "a, b", "", "[x]", "green", "red"];

/// Settings of a model of this file, with categories for columns.
fn with(file: &str, categories: &[(&str, &[&str])]) -> String {
    let mut model = model("xgb_exact.ubj");
    let path = zoo("../categories").join(file);
    model.source = Source::Path(path.display().to_string());
    let owned = |texts: &[&str]| texts.iter().map(|&it| it.to_owned()).collect();
    let categories = categories.iter();
    model.schema_names.categories = categories
        .map(|&(name, texts)| (name.to_owned(), owned(texts)))
        .collect();
    settings(vec![model], Policy::Eager, 1024)
}

/// The predictions of a row for each color.
fn predictions(server: &Running, colors: &[impl serde::Serialize]) -> Value {
    let row = |color| json!({"size": 2, "color": color, "amount": 0.5, "age": 40});
    let rows: Vec<Value> = colors.iter().map(row).collect();
    let body = json!({"instances": rows}).to_string();
    let answer = server.post("/v1/models/m:predict", &[], body.as_bytes());
    let json: Value = serde_json::from_slice(&answer.body).unwrap();
    match answer.status {
        200 => json["predictions"].clone(),
        _ => json["error"].clone(),
    }
}

#[test]
fn texts_are_the_codes_of_the_file_or_of_the_settings_also_after_a_front_died() {
    let volume = Volume::new(&with("xgboost.ubj", &[]));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let expected = predictions(&server, &[0, 1, 2, 3, 4, 5]);
    assert!(
        expected[0].is_f64() && expected[0] != expected[1],
        "{expected}"
    );
    assert_eq!(predictions(&server, &COLORS), expected);
    let message = predictions(&server, &["rot"]);
    let message = message.as_str().unwrap();
    assert!(
        message.contains("\"rot\" is not one of the categories \"red\""),
        "{message}"
    );
    // From here on "red" is the last category.
    volume.update(&with("xgboost.ubj", &[("color", &NAMES)]));
    until_in_force(&server, &volume);
    assert_eq!(predictions(&server, &NAMES), expected);
    let before = predictions(&server, &["blue"]);
    assert!(
        before
            .as_str()
            .is_some_and(|it| it.contains("\"blue\" is not one of")),
        "{before}"
    );

    until(&server, "a standby is ready", |state| {
        state["front"]["standby_ready"] == true
    });
    let front = server.front();
    assert!(kill("-KILL", front));
    let start = Instant::now();
    let is_front = |(pid, _): &(u32, _)| *pid == front;
    while server.processes("front").iter().any(is_front) {
        assert!(start.elapsed() < PATIENCE, "never: the front is gone");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(predictions(&server, &NAMES), expected);
    assert_eq!(predictions(&server, &["blue"]), before);
}

#[test]
fn unknown_texts_of_lightgbm_are_missing_also_by_the_map_of_the_settings() {
    for categories in [&[][..], &[("color", &COLORS[..])]] {
        let volume = Volume::new(&with("lightgbm.txt", categories));
        let mut server = start(&volume, &[]);
        server.wait_until_ready();
        let expected = predictions(&server, &[json!("red"), Value::Null]);
        assert!(
            expected[0].is_f64() && expected[0] != expected[1],
            "{expected}"
        );
        let have = predictions(&server, &["red", "purple"]);
        assert_eq!(have, expected, "{categories:?}");
    }
}

#[test]
fn categories_of_columns_that_a_model_does_not_have_are_refused_by_name() {
    let volume = Volume::new(&with("xgboost.ubj", &[("shade", &COLORS)]));
    let server = start(&volume, &[]);
    for (name, message) in [
        (
            "shade",
            "column \"shade\", which the model does not have; it has [\"amount\", \"color\", \
             \"age\", \"size\"]",
        ),
        // Columns with names cannot be addressed by number.
        ("1", "column \"1\", which the model does not have"),
    ] {
        volume.update(&with("xgboost.ubj", &[(name, &COLORS)]));
        until(&server, message, |state| {
            let error = state["models"][0]["error"].as_str();
            error.is_some_and(|error| error.contains(message))
        });
    }
}
