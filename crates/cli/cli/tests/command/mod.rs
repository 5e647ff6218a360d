//! Runs the real `albacore` and reads NumPy arrays.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `albacore` with these arguments.
pub(crate) fn albacore<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> CommandOutput {
    let first = arguments.first().map(AsRef::as_ref);
    if first.is_some_and(|word| {
        ["bench", "partition", "simulate"]
            .iter()
            .any(|l| word == *l)
    }) {
        build_laboratory();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_albacore"))
        .args(arguments)
        .output()
        .expect("it starts");
    CommandOutput {
        code: output.status.code().expect("no signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Builds `albacore-lab` in the directory of `albacore`, which runs it for `bench`, `partition` and
/// `simulate`.
pub(crate) fn build_laboratory() {
    static BUILT: std::sync::Once = std::sync::Once::new();
    BUILT.call_once(|| {
        albacore_testbed::product_of("albacore-lab-commands", "albacore-lab").expect("it is built");
    });
}

/// Runs a command line whose words contain no spaces.
pub(crate) fn albacore_words(line: &str) -> CommandOutput {
    albacore(&line.split_whitespace().collect::<Vec<_>>())
}

/// Asserts that a run failed with this code and an error that contains these words, and printed
/// nothing to standard output.
pub(crate) fn assert_refused(ran: &CommandOutput, code: i32, words: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    assert_eq!(ran.out, "", "{ran:?}");
    for word in words {
        assert!(ran.err.contains(word), "{word:?} is not in: {}", ran.err);
    }
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
}

pub(crate) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../tests/data")
        .join(path)
}

/// An array with its elements converted to a wider type.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Array {
    pub(crate) descr: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Vec<f64>,
}

/// The bytes of `NAME.npy` in an archive of expected outputs, if present.
pub(crate) fn npz_member(model: &str, name: &str) -> Option<Vec<u8>> {
    let file = File::open(data(&format!("models/{model}.npz"))).unwrap();
    let mut archive = zip::ZipArchive::new(file).unwrap();
    let mut member = archive.by_name(&format!("{name}.npy")).ok()?;
    let mut bytes = Vec::new();
    member.read_to_end(&mut bytes).unwrap();
    Some(bytes)
}

/// Parses row-major .npy bytes.
pub(crate) fn parse_npy(bytes: &[u8]) -> Array {
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..10 + length]).unwrap();
    let after = |key: &str| header.split(&format!("'{key}': ")).nth(1).unwrap();
    assert!(after("fortran_order").starts_with("False"), "{header}");
    let descr = after("descr").split('\'').nth(1).unwrap().to_owned();
    let shape = after("shape")
        .trim_start_matches('(')
        .split(')')
        .next()
        .unwrap();
    let shape: Vec<usize> = shape
        .split(',')
        .filter_map(|axis| axis.trim().parse().ok())
        .collect();
    let body = &bytes[10 + length..];
    let four = || {
        body.chunks_exact(4)
            .map(|b| <[u8; 4]>::try_from(b).unwrap())
    };
    let eight = || {
        body.chunks_exact(8)
            .map(|b| <[u8; 8]>::try_from(b).unwrap())
    };
    let elements: Vec<f64> = match descr.as_str() {
        "<f4" => four().map(|b| f32::from_le_bytes(b).into()).collect(),
        "<i4" => four().map(|b| i32::from_le_bytes(b).into()).collect(),
        "<f8" => eight().map(f64::from_le_bytes).collect(),
        "<i8" => eight().map(|b| i64::from_le_bytes(b) as f64).collect(),
        other => panic!("element type {other}"),
    };
    assert_eq!(elements.len(), shape.iter().product::<usize>(), "{header}");
    Array {
        descr,
        shape,
        elements,
    }
}
