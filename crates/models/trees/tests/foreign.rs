//! Unsupported files as written by their own libraries (`tests/data/foreign`): each is identified,
//! and the error describes how to get a supported file.

// A corrupt archive stops the tests.
#![allow(clippy::expect_used, clippy::panic)]

mod zoo;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use albacore_trees::{Model, ModelError};
use zip::ZipArchive;

/// File name, expected format in the message, and a part of the expected remedy.
const NAMED: [(&str, &str, &str); 54] = [
    (
        "protocol0.pkl",
        "Python pickle (pickle.dump or joblib.dump) of an XGBoost",
        "model.ubj",
    ),
    (
        "protocol1.pkl",
        "Python pickle (pickle.dump or joblib.dump) of an XGBoost",
        "model.ubj",
    ),
    (
        "protocol2.pkl",
        "Python pickle (pickle.dump or joblib.dump) of a scikit-learn",
        "sklearn_to_json.py",
    ),
    (
        "protocol3.pkl",
        "Python pickle (pickle.dump or joblib.dump) of a scikit-learn",
        "sklearn_to_json.py",
    ),
    (
        "protocol4.pkl",
        "Python pickle (pickle.dump or joblib.dump) of a scikit-learn",
        "sklearn_to_json.py",
    ),
    (
        "protocol5.pkl",
        "Python pickle (pickle.dump or joblib.dump) of a scikit-learn",
        "sklearn_to_json.py",
    ),
    (
        "sklearn.joblib",
        "Python pickle (pickle.dump or joblib.dump) of a scikit-learn",
        "sklearn_to_json.py",
    ),
    ("zlib.joblib", "zlib-compressed", "joblib.load"),
    ("gzip.joblib", "gzip-compressed", "joblib.load"),
    ("bz2.joblib", "bzip2-compressed", "joblib.load"),
    ("xz.joblib", "xz-compressed", "joblib.load"),
    ("lzma.joblib", "LZMA-compressed", "joblib.load"),
    (
        "xgboost.pkl",
        "Python pickle (pickle.dump or joblib.dump) of an XGBoost",
        "save_model(\"model.ubj\")",
    ),
    (
        "booster.pkl",
        "Python pickle (pickle.dump or joblib.dump) of an XGBoost",
        "save_model(\"model.ubj\")",
    ),
    (
        "lightgbm.pkl",
        "Python pickle (pickle.dump or joblib.dump) of a LightGBM",
        "save_model(\"model.txt\")",
    ),
    (
        "lightgbm_booster.pkl",
        "Python pickle (pickle.dump or joblib.dump) of a LightGBM",
        "save_model(\"model.txt\")",
    ),
    (
        "catboost.pkl",
        "Python pickle (pickle.dump or joblib.dump) of a CatBoost",
        "not supported",
    ),
    (
        "xgboost.joblib",
        "Python pickle (pickle.dump or joblib.dump) of an XGBoost",
        "joblib.load",
    ),
    (
        "list.pkl",
        "Python pickle (pickle.dump or joblib.dump)",
        "save_model",
    ),
    (
        "save_config.json",
        "XGBoost's configuration (save_config)",
        "booster.save_model",
    ),
    (
        "serialized.ubj",
        "the memory of an XGBoost booster",
        "booster.save_model",
    ),
    (
        "deprecated.model",
        "XGBoost's old binary format",
        "before 3.1",
    ),
    ("first.model", "XGBoost's old binary format", "before 3.1"),
    (
        "dump_model.txt",
        "XGBoost's dump_model as text",
        "booster.save_model",
    ),
    (
        "dump_model.json",
        "XGBoost's dump_model as JSON",
        "booster.save_model",
    ),
    (
        "lightgbm_dump_model.json",
        "LightGBM's dump_model as JSON",
        "booster.save_model",
    ),
    (
        "catboost.cbm",
        "a CatBoost model (cbm)",
        "XGBoost or LightGBM",
    ),
    (
        "catboost.json",
        "a CatBoost model as JSON",
        "XGBoost or LightGBM",
    ),
    (
        "catboost.py",
        "code that CatBoost wrote",
        "XGBoost or LightGBM",
    ),
    (
        "catboost.cpp",
        "code that CatBoost wrote",
        "XGBoost or LightGBM",
    ),
    ("catboost.onnx", "an ONNX model", "original model"),
    ("catboost.pmml", "a PMML document", "original model"),
    ("sklearn.onnx", "an ONNX model", "original model"),
    ("xgboost.onnx", "an ONNX model", "original model"),
    (
        "sklearn.treelite",
        "a treelite checkpoint",
        "original model",
    ),
    (
        "treelite.json",
        "a treelite model as JSON",
        "original model",
    ),
    ("sklearn.pmml", "a PMML document", "original model"),
    ("rows.npz", "NumPy arrays (.npz)", "rows, not a model"),
    ("rows.npy", "a NumPy array (.npy)", "rows, not a model"),
    (
        "sklearn.skops",
        "a scikit-learn model that skops saved",
        "skops.io.load",
    ),
    (
        "model.zip",
        "a ZIP archive; its first file is 'model.ubj'",
        "the model file in it",
    ),
    ("model.ubj.gz", "gzip-compressed", "Decompress it"),
    ("model.ubj.bz2", "bzip2-compressed", "Decompress it"),
    ("model.ubj.xz", "xz-compressed", "Decompress it"),
    ("model.ubj.zlib", "zlib-compressed", "Decompress it"),
    ("empty.ubj", "an empty file", "download the model again"),
    ("zeros.ubj", "3000 zero bytes", "download the model again"),
    ("blank.txt", "only white space", "save_model"),
    (
        "plain.txt",
        "plain text that begins with '404: Not Found'",
        "save_model",
    ),
    (
        "rows.csv",
        "plain text that begins with 'a,b,c'",
        "save_model",
    ),
    (
        "answer.json",
        "JSON of something else; its first key is 'message'",
        "save_model",
    ),
    (
        "page.html",
        "an HTML page titled 'Sign in'",
        "check the URL with curl",
    ),
    (
        "error.xml",
        "XML with the element <Error> with the code NoSuchKey",
        "save_model",
    ),
    ("lfs.ubj", "a Git LFS pointer", "git lfs pull"),
];

fn files() -> BTreeMap<String, Vec<u8>> {
    let path = zoo::folder().join("../foreign/foreign.zip");
    let mut zip = ZipArchive::new(File::open(path).expect("archive")).expect("zip archive");
    let mut files = BTreeMap::new();
    for index in 0..zip.len() {
        let mut member = zip.by_index(index).expect("a member");
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).expect("readable member");
        files.insert(member.name().expect("a name").to_string(), bytes);
    }
    files
}

#[test]
fn unsupported_formats_are_recognized() {
    let files = files();
    assert_eq!(files.len(), NAMED.len());
    let mut mismatches = Vec::new();
    for (name, what, way_out) in NAMED {
        match Model::parse(&files[name]) {
            Err(error @ ModelError::Foreign { .. }) => {
                let message = error.to_string();
                if !message.contains(what) || !message.contains(way_out) {
                    mismatches.push(format!("{name}: {message}"));
                }
            }
            Err(error) => mismatches.push(format!("{name}: {error}")),
            Ok(_) => mismatches.push(format!("{name}: a model")),
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}

#[test]
fn bytes_of_an_unknown_format_are_quoted() {
    let message = |bytes: &[u8]| Model::parse(bytes).expect_err("no model").to_string();
    let unknown = message(b"\xfe\x01\x02\x03");
    assert!(unknown.contains("it begins with fe 01 02 03"), "{unknown}");
    let long = message("ä".repeat(100_000).as_bytes());
    assert!(long.len() < 500, "{long}");
    // A file truncated in the middle of a name, a number or an archive is identified the same or
    // less precisely, and never causes a panic.
    for bytes in files().values() {
        for length in (0..bytes.len().min(600)).chain([bytes.len()]) {
            let _ = Model::parse(&bytes[..length]);
        }
    }
}

#[test]
fn a_damaged_model_is_not_reported_as_unsupported() {
    let model = std::fs::read(zoo::folder().join("xgb_stump.json")).expect("a model");
    for length in [20, 200, model.len() / 2, model.len() - 1] {
        let error = Model::parse(&model[..length]).expect_err("damaged");
        assert!(matches!(error, ModelError::Syntax { .. }), "{error}");
    }
}
