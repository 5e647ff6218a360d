//! Runs `albacore predict` on the test models: the outputs equal those of the training libraries,
//! with the same shapes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod command;

use std::fs;
use std::path::{Path, PathBuf};

use command::{Array, CommandOutput, albacore, assert_refused, data, npz_member, parse_npy};
use tempfile::TempDir;

fn model_file(name: &str) -> PathBuf {
    ["ubj", "json", "txt"]
        .map(|extension| data(&format!("models/{name}.{extension}")))
        .into_iter()
        .find(|path| path.exists())
        .expect("a model file")
}

fn predict(model: &Path, rows: &Path, output: &Path, more: &[&str]) -> CommandOutput {
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let mut arguments = vec!["predict".to_owned(), "--model".to_owned(), path(model)];
    arguments.extend([
        "--data".to_owned(),
        path(rows),
        "--output".to_owned(),
        path(output),
    ]);
    arguments.extend(more.iter().map(|&word| word.to_owned()));
    albacore(&arguments)
}

/// Rows of a test model in a file, and their expected predictions.
struct Zoo {
    dir: TempDir,
    name: &'static str,
}

impl Zoo {
    fn new(name: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("rows.npy"), npz_member(name, "X").unwrap()).unwrap();
        Self { dir, name }
    }

    fn rows(&self) -> PathBuf {
        self.dir.path().join("rows.npy")
    }

    fn bytes(&self, kind: &str, threads: &str) -> Vec<u8> {
        let output = self.dir.path().join("out.npy");
        let more = ["--kind", kind, "--threads", threads];
        let ran = predict(&model_file(self.name), &self.rows(), &output, &more);
        assert_eq!(
            (ran.code, ran.err.as_str(), ran.out.as_str()),
            (0, "", ""),
            "{}",
            self.name
        );
        fs::read(output).unwrap()
    }

    fn expected(&self, array: &str) -> Array {
        parse_npy(&npz_member(self.name, array).unwrap_or_else(|| panic!("{array}")))
    }
}

fn assert_close(name: &str, got: &Array, wanted: &Array, tolerance: f64) {
    assert_eq!(got.shape, wanted.shape, "{name}");
    for (i, (a, b)) in got.elements.iter().zip(&wanted.elements).enumerate() {
        let close = (a - b).abs() <= tolerance * b.abs().max(1.0) || a == b;
        assert!(
            close || (a.is_nan() && b.is_nan()),
            "{name} element {i}: {a} is not {b}"
        );
    }
}

const MODELS: [&str; 12] = [
    "xgb_binary_logistic",
    "xgb_multi_softmax",
    "xgb_dart_multi",
    "xgb_cat_partition",
    "xgb_count_poisson",
    "xgb_v176_binary",
    "xgb_v341_binary",
    "xgb_stump",
    "main_small_d6",
    "lgb_binary",
    "lgb_multiclass",
    "lgb_poisson",
];

#[test]
fn margins_are_bit_equal_and_values_and_leaves_equal_those_of_the_library() {
    for name in MODELS {
        let zoo = Zoo::new(name);
        let margin = parse_npy(&zoo.bytes("margin", "2"));
        let wanted = zoo.expected("margin");
        assert_eq!(
            (&margin.descr, &margin.shape),
            (&wanted.descr, &wanted.shape),
            "{name}"
        );
        let bits = |array: &Array| {
            array
                .elements
                .iter()
                .map(|x| x.to_bits())
                .collect::<Vec<_>>()
        };
        assert_eq!(bits(&margin), bits(&wanted), "{name}");
        let value = parse_npy(&zoo.bytes("value", "2"));
        assert_eq!(value.descr, wanted.descr, "{name}");
        assert_close(name, &value, &zoo.expected("pred"), 3e-7);
        let leaf = parse_npy(&zoo.bytes("leaf", "2"));
        assert_eq!(leaf.descr, "<i4", "{name}");
        let wanted = zoo.expected("leaf");
        assert_eq!(
            (leaf.shape, leaf.elements),
            (wanted.shape, wanted.elements),
            "{name}"
        );
    }
}

#[test]
fn contributions_have_the_library_s_shape_and_values() {
    for name in MODELS {
        let zoo = Zoo::new(name);
        let contribs = parse_npy(&zoo.bytes("contribs", "2"));
        assert_close(name, &contribs, &zoo.expected("contribs"), 2e-5);
        if npz_member(name, "interactions").is_some() {
            let mut interactions = parse_npy(&zoo.bytes("interactions", "2"));
            let wanted = zoo.expected("interactions");
            assert_eq!(interactions.shape[0], contribs.shape[0], "{name}");
            // Only the interactions of the first rows are stored, because they are large.
            interactions.shape[0] = wanted.shape[0];
            interactions.elements.truncate(wanted.elements.len());
            assert_close(name, &interactions, &wanted, 2e-5);
        }
    }
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    for kind in ["value", "margin", "contribs", "interactions", "leaf"] {
        let zoo = Zoo::new("xgb_multi_softmax");
        let one = zoo.bytes(kind, "1");
        for threads in ["2", "3", "64"] {
            assert_eq!(
                zoo.bytes(kind, threads),
                one,
                "{kind} with {threads} threads"
            );
        }
    }
}

#[test]
fn rows_in_double_precision_give_the_same_as_in_single() {
    let zoo = Zoo::new("xgb_binary_logistic");
    let wanted = zoo.bytes("margin", "1");
    let single = fs::read(zoo.rows()).unwrap();
    let array = parse_npy(&single);
    let header = String::from_utf8(single[..128].to_vec().split_off(10)).unwrap();
    let mut double = single[..10].to_vec();
    double.extend(header.replace("<f4", "<f8").as_bytes());
    double.extend(array.elements.iter().flat_map(|x| x.to_le_bytes()));
    fs::write(zoo.rows(), double).unwrap();
    assert_eq!(zoo.bytes("margin", "1"), wanted);
}

#[test]
fn no_rows_give_an_empty_result() {
    let zoo = Zoo::new("xgb_multi_softmax");
    let bytes = fs::read(zoo.rows()).unwrap();
    let shape = parse_npy(&bytes).shape;
    let header = String::from_utf8(bytes[10..128].to_vec()).unwrap();
    let mut empty = bytes[..10].to_vec();
    let rows = shape[0].to_string();
    let zero = format!("({:>width$},", 0, width = rows.len());
    empty.extend(header.replace(&format!("({rows},"), &zero).as_bytes());
    fs::write(zoo.rows(), empty).unwrap();
    assert_eq!(parse_npy(&zoo.bytes("contribs", "2")).shape[0], 0);
}

#[test]
fn an_uncertain_version_prints_a_notice_and_predicts() {
    let zoo = Zoo::new("xgb_stump");
    let model = fs::read_to_string(data("models/xgb_stump.json")).unwrap();
    let old = zoo.dir.path().join("old.json");
    let renamed = model.replace("\"version\":[3,2,0]", "\"version\":[1,6,2]");
    assert_ne!(model, renamed);
    fs::write(&old, renamed).unwrap();
    let out = zoo.dir.path().join("out.npy");
    let ran = predict(&old, &zoo.rows(), &out, &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for words in ["old.json: written by XGBoost 1.6.2", "save_model"] {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }
    assert_eq!(
        predict(&model_file("xgb_stump"), &zoo.rows(), &out, &[]).err,
        ""
    );
    let shown = albacore(&["model", "show", old.to_str().unwrap()]);
    let notice = "notice      written by XGBoost 1.6.2";
    assert!(shown.out.contains(notice), "{}", shown.out);
}

#[test]
fn files_that_do_not_fit_are_refused_with_their_name_and_the_reason() {
    let zoo = Zoo::new("xgb_binary_logistic");
    let (model, rows) = (model_file(zoo.name), zoo.rows());
    let out = zoo.dir.path().join("out.npy");
    let damaged = zoo.dir.path().join("damaged");
    let refused = |model: &Path, rows: &Path, words: &[&str]| {
        assert_refused(&predict(model, rows, &out, &[]), 1, words);
        assert!(!out.exists(), "nothing is written");
    };
    refused(
        Path::new("/no/model.ubj"),
        &rows,
        &["/no/model.ubj", "No such file"],
    );
    refused(
        &model,
        Path::new("/no/rows.npy"),
        &["/no/rows.npy", "No such file"],
    );
    refused(&rows, &rows, &["rows.npy", "not a model"]);
    refused(&model, &model, &["xgb_binary_logistic", "not an .npy file"]);
    fs::write(
        &damaged,
        b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x0fxgboost.sklearn\x94",
    )
    .unwrap();
    refused(
        &damaged,
        &rows,
        &[
            "a Python pickle",
            "XGBoost model",
            "save_model(\"model.ubj\")",
        ],
    );
    fs::write(&damaged, &fs::read(&model).unwrap()[..500]).unwrap();
    refused(&damaged, &rows, &["damaged", "model"]);
    let whole = fs::read(&rows).unwrap();
    fs::write(&damaged, &whole[..whole.len() - 3]).unwrap();
    refused(
        &model,
        &damaged,
        &["damaged", "truncated", "the file contains"],
    );
    let other = Zoo::new("xgb_wide_sparse");
    refused(
        &model,
        &other.rows(),
        &["rows.npy", "values, but the model", "takes 10 features"],
    );
    refused(
        &model_file("xgb_gblinear"),
        &rows,
        &["xgb_gblinear", "gblinear", "not supported"],
    );
}

#[test]
fn a_kind_that_a_model_cannot_give_is_refused() {
    let zoo = Zoo::new("lgb_binary");
    let (model, out) = (
        zoo.dir.path().join("no_counts.txt"),
        zoo.dir.path().join("out.npy"),
    );
    let text = fs::read_to_string(model_file(zoo.name)).unwrap();
    let is_count =
        |line: &&str| line.starts_with("internal_count=") || line.starts_with("leaf_count=");
    let kept: Vec<&str> = text.lines().filter(|line| !is_count(line)).collect();
    fs::write(&model, kept.join("\n")).unwrap();
    let ran = predict(&model, &zoo.rows(), &out, &["--kind", "contribs"]);
    assert_refused(
        &ran,
        1,
        &[
            "no_counts.txt",
            "contribs",
            "not supported",
            "training data",
        ],
    );
    assert_eq!(predict(&model, &zoo.rows(), &out, &[]).code, 0);
}

#[test]
fn wrong_options_are_bad_usage() {
    let zoo = Zoo::new("xgb_stump");
    let (model, rows) = (model_file(zoo.name), zoo.rows());
    let out = zoo.dir.path().join("out.npy");
    for (more, word) in [
        (["--threads", "0"], "--threads 0"),
        (["--threads", "9000"], "8192"),
        (["--threads", "many"], "many"),
        (["--kind", "guess"], "guess"),
    ] {
        assert_refused(&predict(&model, &rows, &out, &more), 64, &[word]);
    }
    let nowhere = zoo.dir.path().join("no/such/out.npy");
    assert_refused(
        &predict(&model, &rows, &nowhere, &[]),
        1,
        &["no/such/out.npy", "directory"],
    );
}

#[test]
fn base_margins_and_approximate_contributions_are_those_of_the_library() {
    for name in ["xgb_binary_logistic", "xgb_multi_target"] {
        let zoo = Zoo::new(name);
        let (model, out) = (model_file(name), zoo.dir.path().join("out.npy"));
        let margins = zoo.dir.path().join("margins.npy");
        fs::write(&margins, npz_member(name, "base_margin_in").unwrap()).unwrap();
        let base = ["--base-margin", margins.to_str().unwrap()];
        let more = [&["--kind", "output_margin", "--threads", "3"], &base[..]].concat();
        let ran = predict(&model, &zoo.rows(), &out, &more);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{name}");
        let got = parse_npy(&fs::read(&out).unwrap());
        assert_close(name, &got, &zoo.expected("margin_with_base_margin"), 0.0);

        let more = ["--kind", "pred_contribs", "--approx-contribs"];
        assert_eq!(predict(&model, &zoo.rows(), &out, &more).code, 0, "{name}");
        let got = parse_npy(&fs::read(&out).unwrap());
        assert_close(name, &got, &zoo.expected("approx_contribs"), 1e-4);
    }
}

#[test]
fn ranges_of_iterations_add_up_and_have_their_trees_as_columns() {
    let zoo = Zoo::new("xgb_binary_logistic");
    let (model, out) = (model_file(zoo.name), zoo.dir.path().join("out.npy"));
    let leaves = |range: &str| {
        let more = ["--kind", "leaf", "--iteration-range", range];
        let ran = predict(&model, &zoo.rows(), &out, &more);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{range}");
        parse_npy(&fs::read(&out).unwrap())
    };
    let (all, first, rest) = (leaves("0,0"), leaves("0,2"), leaves("2,0"));
    assert_eq!(first.shape, [all.shape[0], 2]);
    assert_eq!(rest.shape, [all.shape[0], all.shape[1] - 2]);
    for (row, whole) in all.elements.chunks(all.shape[1]).enumerate() {
        let part = |of: &Array| of.elements[row * of.shape[1]..][..of.shape[1]].to_vec();
        assert_eq!([part(&first), part(&rest)].concat(), whole);
    }
}

#[test]
fn options_that_do_not_fit_the_model_or_the_rows_are_refused() {
    let zoo = Zoo::new("xgb_stump");
    let out = zoo.dir.path().join("out.npy");
    let run = |name: &str, more: &[&str]| predict(&model_file(name), &zoo.rows(), &out, more);
    let of_usage = [
        (["--iteration-range", "0,100000"], "100000"),
        (["--iteration-range", "3"], "comma"),
    ];
    for (more, word) in of_usage {
        assert_refused(&run(zoo.name, &more), 64, &[word]);
    }
    let rows = zoo.rows();
    let rows = rows.to_str().unwrap();
    let not_margins = run(zoo.name, &["--base-margin", rows]);
    assert_refused(&not_margins, 1, &["rows.npy", "margins"]);
    let no_kind = run(zoo.name, &["--approx-contribs"]);
    assert_refused(&no_kind, 1, &["contributions"]);
}

/// The output of `predict` with more arguments, for the rows of a test model.
fn predict_array(zoo: &Zoo, more: &[&str]) -> Array {
    let output = zoo.dir.path().join("out.npy");
    let ran = predict(&model_file(zoo.name), &zoo.rows(), &output, more);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{more:?}");
    parse_npy(&fs::read(output).unwrap())
}

#[test]
fn iterations_are_chosen_by_name_or_number() {
    let zoo = Zoo::new("xgb_early_stop");
    for (more, array) in [
        (&["--iterations", "best"][..], "pred_best"),
        (&["--iterations", "best", "--kind", "margin"], "margin_best"),
        (&["--iterations", "0:2"], "pred_range_0_2"),
        (
            &["--iterations", "1:3", "--kind", "margin"],
            "margin_range_1_3",
        ),
        (&["--iterations", "all"], "pred"),
        (&["--iteration-range", "0,2"], "pred_range_0_2"),
    ] {
        assert_eq!(predict_array(&zoo, more), zoo.expected(array), "{more:?}");
    }
    // The file was saved by a Booster; without an explicit choice, a notice states which iterations
    // are used.
    let output = zoo.dir.path().join("out.npy");
    let ran = predict(&model_file(zoo.name), &zoo.rows(), &output, &[]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    for part in [
        "best_iteration is 5",
        "as the Booster",
        "set iterations to Best",
    ] {
        assert!(ran.err.contains(part), "{part} in {}", ran.err);
    }
    assert_eq!(parse_npy(&fs::read(&output).unwrap()), zoo.expected("pred"));
    // One column per remaining tree.
    let leaves = predict_array(&zoo, &["--iterations", "1:3", "--kind", "leaf"]);
    let whole = zoo.expected("leaf");
    assert_eq!(leaves.shape[0], whole.shape[0]);
    let trees = whole.shape[1];
    let (got, all) = (leaves.elements.chunks(2), whole.elements.chunks(trees));
    assert!(got.zip(all).all(|(got, all)| *got == all[1..3]));
    let light = Zoo::new("lgb_multiclass");
    let margin = predict_array(&light, &["--iterations", "1:3", "--kind", "margin"]);
    assert_eq!(margin, light.expected("margin_it_1_2"));
}

#[test]
fn iterations_that_the_file_does_not_hold_are_refused() {
    let refused = |name: &'static str, iterations: &str, code: i32, words: &[&str]| {
        let zoo = Zoo::new(name);
        let more = ["--iterations", iterations];
        let output = zoo.dir.path().join("out.npy");
        let ran = predict(&model_file(name), &zoo.rows(), &output, &more);
        assert_refused(&ran, code, words);
        assert!(!output.exists());
    };
    let none = [
        "lgb_multiclass.txt",
        "names no best iteration (LightGBM writes none",
    ];
    refused("lgb_multiclass", "best", 1, &none);
    refused(
        "xgb_exact",
        "best",
        1,
        &["names no best iteration: choose All"],
    );
    refused(
        "lgb_multiclass",
        "2:9",
        1,
        &["from 2 to 9", "which holds 6"],
    );
    refused("lgb_multiclass", "2:2", 1, &["end must be above begin"]);
    refused("lgb_multiclass", "2:0", 1, &["end must be above begin"]);
    for wrong in ["Best", "3", "1:", "1:-2", "1:2:3", "a:b"] {
        refused(
            "lgb_multiclass",
            wrong,
            64,
            &["write all, best, or BEGIN:END"],
        );
    }
}
