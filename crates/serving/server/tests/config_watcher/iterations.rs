//! The boosting iterations of a served model are changed by an edit of the settings.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use albacore_settings::{IterationsSetting, Policy};
use serde_json::{Value, json};

use super::running::{PATIENCE, Running, zoo as zoo_file};
use super::{Volume, infer, model, settings, start, until, until_in_force};

#[path = "../../../../models/trees/tests/zoo/mod.rs"]
mod zoo;

fn settings_with(file: &str, iterations: Option<IterationsSetting>) -> String {
    let mut model = model(file);
    model.iterations = iterations;
    settings(vec![model], Policy::Eager, 1024)
}

/// First and last iteration in use, number of iterations in the file, and the best one.
fn iterations_in_use(server: &Running) -> [Value; 4] {
    let metadata = server.get("/v2/models/m").json();
    let names = [
        "iterations_begin",
        "iterations_end",
        "iterations_in_file",
        "best_iteration",
    ];
    names.map(|name| metadata["parameters"][name].clone())
}

/// The indices of rows without NaN, which JSON cannot represent.
fn finite_rows(values: &[f32], width: usize) -> Vec<usize> {
    let rows = values.chunks_exact(width).enumerate();
    rows.filter(|(_, row)| row.iter().all(|value| value.is_finite()))
        .map(|(index, _)| index)
        .collect()
}

#[test]
fn an_edit_of_iterations_loads_other_trees() {
    let sample = zoo::sample("xgb_early_stop");
    let rows = sample.array("X").unwrap();
    let values = rows.as_f32();
    let kept = finite_rows(&values, rows.width());
    assert!(kept.len() > 10);
    let data: Vec<&[f32]> = kept
        .iter()
        .map(|&row| &values[row * rows.width()..][..rows.width()])
        .collect();
    let body = json!({
        "inputs": [{"name": "input", "shape": [kept.len(), rows.width()], "datatype": "FP32",
            "data": data.concat()}],
        "outputs": [{"name": "output"}, {"name": "leaf"}],
    });
    let answers_as = |server: &Running, array: &str, trees: u64| {
        let answer = infer(server, "m", body.to_string().as_bytes()).json();
        let expected = sample.array(array).unwrap();
        let output = answer["outputs"][0]["data"].as_array().unwrap();
        for (&row, actual) in kept.iter().zip(output) {
            let actual = actual.as_f64().unwrap() as f32;
            assert_eq!(
                actual.to_bits(),
                (expected.data[row] as f32).to_bits(),
                "{array}"
            );
        }
        assert_eq!(answer["outputs"][1]["shape"][1], trees);
    };
    let file = "xgb_early_stop.ubj";
    let volume = Volume::new(&settings_with(file, None));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let [begin, end, in_file, best] = iterations_in_use(&server);
    assert_eq!((begin, &end, best), (json!(0), &in_file, json!(5)));
    let whole = in_file.as_u64().unwrap();
    answers_as(&server, "pred", whole);

    let edit = |iterations: IterationsSetting, end: u64| {
        volume.update(&settings_with(file, Some(iterations)));
        // The file and its digest stay the same, so wait for the model itself.
        until(&server, "other iterations are used", |_| {
            iterations_in_use(&server)[1] == json!(end)
        });
        until_in_force(&server, &volume);
    };
    let to_best = IterationsSetting::Best;
    edit(to_best, 6);
    answers_as(&server, "pred_best", 6);
    edit(IterationsSetting::Range { begin: 0, end: 2 }, 2);
    answers_as(&server, "pred_range_0_2", 2);
    edit(IterationsSetting::All, whole);
    answers_as(&server, "pred", whole);

    // Iterations beyond those in the file are an error, and the served model does not change.
    let beyond = IterationsSetting::Range {
        begin: 0,
        end: 1 + whole as u32,
    };
    volume.update(&settings_with(file, Some(beyond)));
    let state = until(&server, "the model failed", |state| {
        state["models"][0]["state"] == "failed"
    });
    let error = state["models"][0]["error"].as_str().unwrap();
    assert!(error.contains("not within the file"), "{error}");
    assert!(error.contains(file), "{error}");
    answers_as(&server, "pred", whole);
    volume.update(&settings_with("xgb_exact.ubj", Some(to_best)));
    let state = until(&server, "no best iteration", |state| {
        let error = state["models"][0]["error"].as_str();
        error.is_some_and(|error| error.contains("names no best iteration"))
    });
    assert_eq!(state["models"][0]["state"], "failed");
    answers_as(&server, "pred", whole);
}

/// The first line on standard error that contains a best iteration.
fn iterations_log_line(arguments: &[&str]) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_albacore-server"))
        .args(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (send, found) = std::sync::mpsc::sync_channel(1);
    let reader = std::thread::spawn(move || {
        let mut lines = stderr.lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("best_iteration"));
        send.send(line).unwrap();
        // Keeps reading, so that the server never blocks on a full pipe.
        lines.for_each(drop);
    });
    let line = found.recv_timeout(PATIENCE);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    line.expect("a line in time")
        .expect("a line before the end")
}

#[test]
fn a_server_logs_which_iterations_are_used_where_none_were_chosen() {
    let file = "xgb_early_stop.ubj";
    let volume = Volume::new(&settings_with(file, None));
    let settings = volume.settings().display().to_string();
    let fixed = format!("m={}", zoo_file(file).display());
    for arguments in [
        ["--settings", settings.as_str()],
        ["--model", fixed.as_str()],
    ] {
        let line = iterations_log_line(&arguments);
        for part in [
            "best_iteration is 5",
            "as the Booster that saved the file predicts",
            "set iterations to Best",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}
