//! Identifies unsupported files: formats of other libraries, other outputs of XGBoost and LightGBM,
//! compressed files, and files that are not models. The error contains the format and how to get a
//! supported file. Only magic numbers and the start of the file are read; nothing is decompressed
//! or loaded.

mod pipeline;
mod text;

use crate::error::{ModelError, excerpt};
use crate::limits::FOREIGN_KEYS_MAX;
use crate::value_reader::ValueReader;

/// How to write each supported format.
const SUPPORTED: &str = "Save the model with XGBoost (save_model(\"model.ubj\")), with LightGBM \
     (save_model(\"model.txt\")), or convert a scikit-learn model with scripts/sklearn_to_json.py";
const UNPICKLE: &str = "Load it in the Python that wrote it and save the model: ";
const CATBOOST: &str =
    "CatBoost models are not supported. Train the model with XGBoost or LightGBM";
const EXPORT: &str = "An export cannot be converted back. From the original model: XGBoost's \
     save_model(\"model.ubj\"), LightGBM's save_model(\"model.txt\"), or scripts/sklearn_to_json.py \
     for scikit-learn";
const XGBOOST_SAVE: &str = "Save the booster: booster.save_model(\"model.ubj\")";
const LIGHTGBM_SAVE: &str = "Save the booster: booster.save_model(\"model.txt\")";
const DECOMPRESS: &str = "Decompress it first. If it was written by joblib.dump with compress, load \
     it and save the model: python3 -c 'import joblib; \
     joblib.load(\"FILE\").save_model(\"model.ubj\")' (LightGBM: model.txt; scikit-learn: \
     scripts/sklearn_to_json.py FILE model.json)";
const OLD_BINARY: &str = "Load it with an XGBoost before 3.1 and save it again: \
     python3 -c 'import xgboost; \
     xgboost.Booster(model_file=\"FILE\").save_model(\"model.ubj\")'";
const NOT_DATA: &str = "These are rows, not a model. ";

/// Number of bytes of a file that are searched for names.
const HEAD_BYTES: usize = 64 * 1024;

fn foreign(what: impl Into<String>, remedy: &str) -> ModelError {
    ModelError::Foreign {
        what: what.into(),
        remedy: remedy.to_owned(),
    }
}

/// Formats that are identified by a magic number.
const MAGIC: [(&[u8], &str, &str); 21] = [
    (b"\x1f\x8b", "gzip-compressed data", DECOMPRESS),
    (b"BZh", "bzip2-compressed data", DECOMPRESS),
    (b"\xfd7zXZ\0", "xz-compressed data", DECOMPRESS),
    (b"]\0\0", "LZMA-compressed data", DECOMPRESS),
    (b"\x04\x22\x4d\x18", "LZ4-compressed data", DECOMPRESS),
    (b"\x28\xb5\x2f\xfd", "Zstandard-compressed data", DECOMPRESS),
    (b"ZF0x", "zlib-compressed data of an old joblib", DECOMPRESS),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", DECOMPRESS),
    (b"CBM1", "a CatBoost model (cbm)", CATBOOST),
    (b"binf", "XGBoost's old binary format", OLD_BINARY),
    (b"bs64", "XGBoost's old binary format in base64", OLD_BINARY),
    (b"\x93NUMPY", "a NumPy array (.npy)", NOT_DATA),
    (b"PAR1", "a Parquet table", NOT_DATA),
    (b"ARROW1", "an Arrow table", NOT_DATA),
    (b"\x89HDF", "an HDF5 file (Keras or a table)", SUPPORTED),
    (b"\xac\xed\0\x05", "a serialized Java object", SUPPORTED),
    (b"X\n\0\0\0", "a serialized R object (RDS)", EXPORT),
    (b"RDX", "a saved R workspace (RData)", EXPORT),
    (b"\x7fELF", "a program or a shared library (ELF)", EXPORT),
    (b"%PDF", "a PDF document", SUPPORTED),
    (b"\x89PNG", "an image (PNG)", SUPPORTED),
];

/// Returns the error for bytes that are not in a supported format.
pub(crate) fn identify(bytes: &[u8]) -> ModelError {
    if bytes.is_empty() {
        let remedy = format!("Copy or download the model again. {SUPPORTED}");
        return foreign("an empty file", &remedy);
    }
    if bytes.iter().all(|&byte| byte == 0) {
        let what = format!("{} zero bytes, as an interrupted copy leaves", bytes.len());
        return foreign(what, "Copy or download the model again");
    }
    let by_magic = MAGIC.iter().find(|(magic, ..)| bytes.starts_with(magic));
    if let Some(&(_, what, remedy)) = by_magic {
        return match remedy {
            NOT_DATA => foreign(what, &format!("{NOT_DATA}{SUPPORTED}")),
            _ => foreign(what, remedy),
        };
    }
    pickle(bytes)
        .or_else(|| archive(bytes))
        .or_else(|| binary(bytes))
        .or_else(|| text::identify(bytes))
        .unwrap_or_else(|| {
            let start: Vec<String> = bytes.iter().take(8).map(|it| format!("{it:02x}")).collect();
            let what = format!("in no known format; it begins with {}", start.join(" "));
            foreign(what, SUPPORTED)
        })
}

fn contains(bytes: &[u8], name: &[u8]) -> Option<usize> {
    bytes.windows(name.len()).position(|window| window == name)
}

/// Identifies pickle and joblib files by the library of the pickled objects.
fn pickle(bytes: &[u8]) -> Option<ModelError> {
    let is_binary = bytes[0] == 0x80
        && bytes
            .get(1)
            .is_some_and(|version| (2..=5).contains(version));
    if !is_binary && !is_early_pickle(bytes) {
        return None;
    }
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    let libraries = ["xgboost", "lightgbm", "catboost", "sklearn"];
    let named = libraries
        .into_iter()
        .filter_map(|name| contains(head, name.as_bytes()).map(|offset| (offset, name)));
    let library = named.min().map(|(_, name)| name);
    if let Some((step, class)) = pipeline::first_step(head) {
        let what = format!(
            "a Python pickle of a scikit-learn pipeline whose first step is {} ({})",
            excerpt(step),
            excerpt(class)
        );
        let remedy = format!(
            "Steps before the trees are not supported: apply them before the request, and save \
             only the last step. {UNPICKLE}python3 scripts/sklearn_to_json.py FILE model.json"
        );
        return Some(foreign(what, &remedy));
    }
    let (of, remedy) = match library {
        Some("xgboost") => (
            " of an XGBoost model",
            format!(
                "{UNPICKLE}python3 -c 'import joblib; \
                 joblib.load(\"FILE\").save_model(\"model.ubj\")'"
            ),
        ),
        Some("lightgbm") if contains(head, b"LGBMClassifier").is_some() => (
            " of a LightGBM model",
            format!(
                "{UNPICKLE}python3 scripts/sklearn_to_json.py FILE model.json; or, without the \
                 classes that predict gives, booster_.save_model(\"model.txt\")"
            ),
        ),
        Some("lightgbm") => (
            " of a LightGBM model",
            format!(
                "{UNPICKLE}python3 -c 'import joblib; model = joblib.load(\"FILE\"); \
                 getattr(model, \"booster_\", model).save_model(\"model.txt\")'"
            ),
        ),
        Some("catboost") => (" of a CatBoost model", CATBOOST.to_owned()),
        Some(_) => (
            " of a scikit-learn model",
            format!("{UNPICKLE}python3 scripts/sklearn_to_json.py FILE model.json"),
        ),
        None => ("", SUPPORTED.to_owned()),
    };
    let what = format!("a Python pickle (pickle.dump or joblib.dump){of}");
    Some(foreign(what, &remedy))
}

/// Protocols 0 and 1: a line with a module, a line with a name, and a dot as the last byte.
fn is_early_pickle(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"c") else {
        return bytes.starts_with(b"(dp0\n") || bytes.starts_with(b"(lp0\n");
    };
    let is_name = |line: &[u8]| {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        !line.is_empty() && line.iter().all(is_part)
    };
    let head = &rest[..rest.len().min(256)];
    let mut lines = head.split(|&byte| byte == b'\n');
    let (module, name) = (lines.next(), lines.next());
    bytes.ends_with(b".") && module.is_some_and(is_name) && name.is_some_and(is_name)
}

/// Identifies ZIP and tar archives by their contents.
fn archive(bytes: &[u8]) -> Option<ModelError> {
    if bytes.get(257..262) == Some(b"ustar") {
        return Some(foreign("a tar archive", "Give the model file in it"));
    }
    if !bytes.starts_with(b"PK\x03\x04") && !bytes.starts_with(b"PK\x05\x06") {
        return None;
    }
    let length = bytes
        .get(26..28)
        .map_or(0, |it| usize::from(it[0]) | usize::from(it[1]) << 8);
    let member = bytes.get(30..30 + length).unwrap_or_default();
    let member = String::from_utf8_lossy(member);
    let last = &bytes[bytes.len().saturating_sub(HEAD_BYTES)..];
    Some(if contains(last, b"schema.json").is_some() {
        let remedy = "In the Python that wrote it run python3 scripts/sklearn_to_json.py FILE \
                      model.json, which opens it with skops.io.load and trusts it";
        foreign("a scikit-learn model that skops saved", remedy)
    } else if member.ends_with(".npy") {
        foreign("NumPy arrays (.npz)", &format!("{NOT_DATA}{SUPPORTED}"))
    } else if member.ends_with("data.pkl") {
        foreign("a PyTorch model", SUPPORTED)
    } else {
        let what = format!("a ZIP archive; its first file is '{}'", excerpt(&member));
        foreign(what, "Give the model file in it")
    })
}

/// Identifies binary formats that have no simple magic number.
fn binary(bytes: &[u8]) -> Option<ModelError> {
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    let number = |at: usize| {
        let four = bytes.get(at..at + 4)?;
        four.try_into().ok().map(u32::from_le_bytes)
    };
    let is_zlib = bytes[0] == 0x78
        && matches!(bytes.get(1), Some(0x01 | 0x5e | 0x9c | 0xda))
        && std::str::from_utf8(head).is_err();
    if is_zlib {
        return Some(foreign("zlib-compressed data", DECOMPRESS));
    }
    // A protobuf message: the version of the format, then names.
    let is_message = bytes[0] == 0x08 && bytes.get(1).is_some_and(|&version| version < 0x40);
    let is_onnx = ["onnx", "ONNX", "Onnx"]
        .iter()
        .any(|name| contains(head, name.as_bytes()).is_some());
    if is_message && (is_onnx || bytes.get(2) == Some(&0x12)) {
        return Some(foreign("an ONNX model", EXPORT));
    }
    // The version of treelite, then the types of thresholds and leaves.
    let version = [number(0), number(4), number(8)];
    let is_version = |part: &Option<u32>| part.is_some_and(|part| part < 100);
    let types = bytes.get(12..14).unwrap_or_default();
    let is_type = |kind: &u8| (1..=3).contains(kind);
    if version.iter().all(is_version)
        && version[0].is_some_and(|major| (2..10).contains(&major))
        && types.len() == 2
        && types.iter().all(is_type)
    {
        return Some(foreign("a treelite checkpoint", EXPORT));
    }
    if bytes.get(4..8) == Some(b"TFL3") {
        return Some(foreign("a TensorFlow Lite model", SUPPORTED));
    }
    // XGBoost's first binary format: 136 bytes of parameters, then names with their lengths.
    let names = bytes.get(136..).unwrap_or_default();
    let names = &names[..names.len().min(128)];
    let boosters: [&[u8]; 3] = [b"gbtree", b"gblinear", b"dart"];
    if boosters.iter().any(|name| contains(names, name).is_some()) && bytes[..136].contains(&0) {
        return Some(foreign("XGBoost's old binary format", OLD_BINARY));
    }
    None
}

/// Returns the keys of an object, and `learner.KEY` for the keys of its learner.
fn keys<S: ValueReader>(source: &mut S) -> Vec<String> {
    let mut keys = Vec::new();
    // On an error, the keys before it suffice.
    let _ = source.object(&mut |source, key| {
        if keys.len() < FOREIGN_KEYS_MAX {
            keys.push(key.to_owned());
        }
        if key != "learner" {
            return source.skip();
        }
        source.object(&mut |source, key| {
            if keys.len() < FOREIGN_KEYS_MAX {
                keys.push(format!("learner.{key}"));
            }
            source.skip()
        })
    });
    keys
}

/// Returns the error for a JSON or UBJSON object that was rejected as an XGBoost model with
/// `error`.
pub(crate) fn identify_object<S: ValueReader>(
    bytes: &[u8],
    source: &mut S,
    error: ModelError,
) -> ModelError {
    if matches!(
        error,
        ModelError::Unsupported(_) | ModelError::TooLarge { .. }
    ) {
        return error;
    }
    let keys = keys(source);
    let has = |name: &str| keys.iter().any(|key| key == name);
    if has("learner.generic_param") || has("learner.learner_train_param") {
        foreign(
            "XGBoost's configuration (save_config), without trees",
            XGBOOST_SAVE,
        )
    } else if has("Config") && has("Model") {
        foreign("the memory of an XGBoost booster (serialize)", XGBOOST_SAVE)
    } else if has("tree_info") {
        foreign("LightGBM's dump_model as JSON", LIGHTGBM_SAVE)
    } else if has("oblivious_trees") || has("features_info") {
        foreign("a CatBoost model as JSON", CATBOOST)
    } else if has("threshold_type") || has("leaf_output_type") {
        foreign("a treelite model as JSON", EXPORT)
    } else if has("learner") || has("version") {
        error
    } else if let Some(first) = keys.first() {
        let what = format!(
            "JSON of something else; its first key is '{}'",
            excerpt(first)
        );
        foreign(what, SUPPORTED)
    } else {
        text::identify(bytes).unwrap_or(error)
    }
}
