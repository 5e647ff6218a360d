//! The model zoo of `tests/data/models`: model files, facts, and the results of the libraries.

// Every test program uses a part of this module, and stops if the zoo is corrupt.
#![allow(dead_code, clippy::expect_used, clippy::panic)]

pub(crate) mod archives;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use zip::ZipArchive;

/// An array of any element type, widened (exactly) to `f64`.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    /// Row-major values.
    pub(crate) data: Vec<f64>,
    /// Whether the element type of the file is `f32`.
    pub(crate) is_f32: bool,
}

impl Array {
    /// Returns the number of values per entry of the first axis.
    pub(crate) fn width(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// Returns the values rounded to `f32` (exact if the file contains `f32`).
    pub(crate) fn as_f32(&self) -> Vec<f32> {
        self.data.iter().map(|&value| value as f32).collect()
    }
}

/// One model of the zoo.
pub(crate) struct Sample {
    /// Name in `index.json`.
    pub(crate) name: String,
    /// Content of `NAME.meta.json`.
    pub(crate) meta: serde_json::Value,
    /// The model in every format available in the zoo.
    pub(crate) files: Vec<PathBuf>,
    arrays: HashMap<String, Array>,
}

impl Sample {
    /// Returns the array with this name, if the zoo has it for this model.
    pub(crate) fn array(&self, name: &str) -> Option<&Array> {
        self.arrays.get(name)
    }

    /// Returns the bytes of every model file.
    pub(crate) fn models(&self) -> impl Iterator<Item = (&Path, Vec<u8>)> {
        self.files
            .iter()
            .map(|path| (path.as_path(), fs::read(path).expect("model file")))
    }

    /// Returns a number of the meta file.
    pub(crate) fn fact(&self, name: &str) -> Option<f64> {
        self.meta.get(name)?.as_f64()
    }

    /// Returns whether the library is XGBoost (else LightGBM).
    pub(crate) fn is_xgboost(&self) -> bool {
        self.meta["lib"] == "xgboost"
    }
}

/// Returns the folder of the zoo.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/models")
}

/// Returns all models in the order of `index.json`.
pub(crate) fn samples() -> Vec<Sample> {
    let index = fs::read_to_string(folder().join("index.json")).expect("index.json");
    let names: Vec<String> = serde_json::from_str(&index).expect("a list of names");
    names.iter().map(|name| sample(name)).collect()
}

/// Returns one model by name.
pub(crate) fn sample(name: &str) -> Sample {
    let path = |extension: &str| folder().join(format!("{name}.{extension}"));
    let meta = fs::read_to_string(path("meta.json")).expect("meta file");
    let files: Vec<PathBuf> = ["json", "ubj", "txt"]
        .into_iter()
        .map(path)
        .filter(|path| path.exists())
        .collect();
    assert!(!files.is_empty(), "{name} has no model file");
    Sample {
        name: name.to_owned(),
        meta: serde_json::from_str(&meta).expect("meta file is JSON"),
        files,
        arrays: read_npz(&path("npz")),
    }
}

/// Reads an archive of `NAME.npy` members.
fn read_npz(path: &Path) -> HashMap<String, Array> {
    let mut archive = ZipArchive::new(File::open(path).expect("npz file")).expect("npz archive");
    let mut arrays = HashMap::new();
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).expect("listed member");
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).expect("readable member");
        let name = member
            .name()
            .expect("member name")
            .trim_end_matches(".npy")
            .to_owned();
        let array = parse_npy(&bytes).unwrap_or_else(|| panic!("{name} of {}", path.display()));
        arrays.insert(name, array);
    }
    arrays
}

/// Parses a NumPy file: magic and version (8 bytes), header length, header, row-major values. The
/// header has the format `{'descr': '<f4', 'fortran_order': False, 'shape': (62, 10), }`.
fn parse_npy(bytes: &[u8]) -> Option<Array> {
    let (&magic, rest) = bytes.split_first_chunk::<8>()?;
    assert_eq!(&magic, b"\x93NUMPY\x01\x00", "npy version 1.0");
    let (&length, rest) = rest.split_first_chunk::<2>()?;
    let (header, values) = rest.split_at_checked(u16::from_le_bytes(length).into())?;
    let header = std::str::from_utf8(header).ok()?;
    let after = |key: &str| header.split_once(key).map(|(_, rest)| rest);
    assert!(after("'fortran_order': ")?.starts_with("False"));
    let (shape, _) = after("'shape': (")?.split_once(')')?;
    let extents = shape
        .split(',')
        .map(str::trim)
        .filter(|extent| !extent.is_empty());
    let shape = extents
        .map(str::parse)
        .collect::<Result<Vec<usize>, _>>()
        .ok()?;
    let (element, _) = after("'descr': '")?.split_once('\'')?;
    let data: Vec<f64> = match element {
        "<f4" => decode(values, |v| f32::from_le_bytes(v).into()),
        "<f8" => decode(values, f64::from_le_bytes),
        "<i4" => decode(values, |v| i32::from_le_bytes(v).into()),
        "<i8" => decode(values, |v| i64::from_le_bytes(v) as f64),
        _ => return None,
    };
    assert_eq!(data.len(), shape.iter().product::<usize>());
    Some(Array {
        shape,
        data,
        is_f32: element == "<f4",
    })
}

/// Decodes little-endian elements of N bytes.
fn decode<const N: usize>(values: &[u8], element: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    values
        .as_chunks()
        .0
        .iter()
        .map(|&bytes| element(bytes))
        .collect()
}
