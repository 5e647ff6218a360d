//! Files written by NumPy are read; every other file is rejected with a reason.

use super::{Floats, Matrix, parse, read_vector_or_table, write};

fn parse_table(bytes: &[u8]) -> Result<Matrix, String> {
    parse(bytes, |shape| match *shape {
        [rows, columns] => Some((rows, columns)),
        _ => None,
    })
}

fn file(header: &str, elements: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(elements);
    bytes
}

fn error(bytes: &[u8]) -> String {
    parse_table(bytes).expect_err("must be refused")
}

const SIX: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, f32::INFINITY];
const HEADER: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n";

fn six<const N: usize>(encode: fn(f32) -> [u8; N]) -> Vec<u8> {
    SIX.into_iter().flat_map(encode).collect()
}

#[test]
fn both_precisions_byte_orders_and_array_orders_are_read() {
    let little = six(f32::to_le_bytes);
    let table = |floats| Matrix {
        rows: 2,
        columns: 3,
        floats,
    };
    let singles = || table(Floats::F32(SIX.to_vec()));
    assert_eq!(parse_table(&file(HEADER, &little)), Ok(singles()));
    let spaced = "{ \"shape\":(2,3),\"fortran_order\" : False,\"descr\":\"<f4\"}";
    assert_eq!(parse_table(&file(spaced, &little)), Ok(singles()));
    let big = six(f32::to_be_bytes);
    assert_eq!(
        parse_table(&file(&HEADER.replace('<', ">"), &big)),
        Ok(singles())
    );
    let doubles = six(|x| f64::from(x).to_le_bytes());
    assert_eq!(
        parse_table(&file(&HEADER.replace("f4", "f8"), &doubles)),
        Ok(table(Floats::F64(SIX.map(f64::from).to_vec())))
    );
    let by_column = parse_table(&file(&HEADER.replace("False", "True"), &little));
    let transposed = vec![1.0, 3.0, 5.0, 2.0, 4.0, f32::INFINITY];
    assert_eq!(by_column, Ok(table(Floats::F32(transposed))));
    let empty = parse_table(&file(&HEADER.replace("(2", "(0"), &[]));
    assert_eq!(empty.map(|table| (table.rows, table.columns)), Ok((0, 3)));
}

#[test]
fn version_two_has_a_length_of_four_bytes() {
    let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
    bytes.extend((HEADER.len() as u32).to_le_bytes());
    bytes.extend(HEADER.as_bytes());
    bytes.extend(six(f32::to_le_bytes));
    let table = parse_table(&bytes).expect("a table");
    assert_eq!(table.floats, Floats::F32(SIX.to_vec()));
}

#[test]
fn every_truncation_is_refused() {
    let whole = file(HEADER, &six(f32::to_le_bytes));
    for length in 0..whole.len() {
        assert!(parse_table(&whole[..length]).is_err(), "{length} bytes");
    }
    assert!(error(&whole[..whole.len() - 1]).contains("has 6 elements, the file contains 5"));
    assert!(error(&[&whole[..], b"x"].concat()).contains("more than one array"));
}

#[test]
fn invalid_headers_are_refused_with_the_reason() {
    let header = |descr: &str, order: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")
    };
    let nested = "[".repeat(9000);
    let many_axes = format!("({})", "1,".repeat(100));
    for (header, word) in [
        (
            header("'<i8'", "False", "(2, 3)"),
            "'<i8': expected float32 or",
        ),
        (header("'|O'", "False", "(2, 3)"), "'|O'"),
        (header("[('a', '<f4')]", "False", "(2, 3)"), "[('a', '<f4')"),
        (header(&nested, "False", "(2, 3)"), "structured"),
        (header("'<f4'", "Maybe", "(2, 3)"), "damaged"),
        (header("'<f4'", "False", "(6,)"), "shape [6]"),
        (header("'<f4'", "False", "()"), "shape []"),
        (header("'<f4'", "False", "(1, 2, 3)"), "shape [1, 2, 3]"),
        (header("'<f4'", "False", "(-1, 3)"), "negative"),
        (
            header("'<f4'", "False", "(99999999999999999999, 3)"),
            "exceed the limit of this program",
        ),
        (
            header("'<f4'", "False", "(0, 99999999999999999999)"),
            "exceed the limit of this program",
        ),
        (
            header("'<f4'", "False", "(9999999999999, 9999999999999)"),
            "exceed the limit of this program",
        ),
        (
            header("'<f4'", "False", "(9999999999, 9)"),
            "exceed the limit of this program",
        ),
        (
            header("'<f4'", "False", &many_axes),
            "exceed the limit of this",
        ),
        (
            "{'descr': '<f4', 'shape': (2, 3)}".to_owned(),
            "missing key 'fortran_order'",
        ),
        ("{'descr': '<f4'} {".to_owned(), "damaged"),
        (String::new(), "damaged"),
        ("x".repeat(20_000), "20000 bytes long"),
    ] {
        let error = error(&file(&header, &[0; 24]));
        assert!(error.contains(word), "{header:.60}: {error}");
        assert!(!error.contains('\n'), "one line: {error}");
    }
    assert!(error(b"PK\x03\x04 something").contains("not an .npy file"));
    assert!(error(b"\x93NUMPY\x09\x00\x00\x00\x00\x00").contains("version: (9"));
}

#[test]
fn written_arrays_are_read_back_and_their_elements_are_aligned() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.npy");
    let values = [1.5f64, f64::NEG_INFINITY, -0.0, 4.0];
    for shape in [&[2, 2][..], &[4]] {
        write(&path, shape, &values).expect("written");
        assert_eq!(std::fs::read(&path).expect("a file").len() % 64, 32);
        let table = read_vector_or_table(&path).expect("a table");
        assert_eq!(table.rows, shape[0]);
        assert_eq!(table.floats, Floats::F64(values.to_vec()));
    }
}
