//! What numpy writes is read, what it cannot write is refused, whatever the bytes are.

use super::{Floats, NpyError, Table, parse_table, shape_text, write};
use crate::header::Header;

fn file(header: &str, elements: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(elements);
    bytes
}

fn error(bytes: &[u8]) -> String {
    parse_table(bytes).expect_err("must be refused").to_string()
}

const SIX: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, f32::INFINITY];

fn six(encode: fn(f32) -> Vec<u8>) -> Vec<u8> {
    SIX.into_iter().flat_map(encode).collect()
}

#[test]
fn both_precisions_byte_orders_and_array_orders_are_read() {
    let le = six(|x| x.to_le_bytes().into());
    let c = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n";
    let wanted = Table {
        rows: 2,
        columns: 3,
        floats: Floats::F32(SIX.to_vec()),
    };
    assert_eq!(parse_table(file(c, &le).as_slice()).unwrap(), wanted);
    let spaced = "{ \"shape\":(2,3),\"fortran_order\" : False,\"descr\":\"<f4\"}";
    assert_eq!(parse_table(file(spaced, &le).as_slice()).unwrap(), wanted);
    let be = six(|x| x.to_be_bytes().into());
    assert_eq!(
        parse_table(file(&c.replace('<', ">"), &be).as_slice()).unwrap(),
        wanted
    );
    let double = six(|x| f64::from(x).to_le_bytes().into());
    let wanted = Table {
        floats: Floats::F64(SIX.map(f64::from).to_vec()),
        ..wanted
    };
    assert_eq!(
        parse_table(file(&c.replace("f4", "f8"), &double).as_slice()).unwrap(),
        wanted
    );
    let by_column = parse_table(file(&c.replace("False", "True"), &le).as_slice()).unwrap();
    assert_eq!(
        by_column.floats,
        Floats::F32(vec![1.0, 3.0, 5.0, 2.0, 4.0, f32::INFINITY])
    );
    let empty = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3)}";
    assert_eq!(parse_table(file(empty, &[]).as_slice()).unwrap().rows, 0);
}

#[test]
fn version_two_has_a_longer_length() {
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }";
    let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(7.0f32.to_le_bytes());
    assert_eq!(
        parse_table(bytes.as_slice()).unwrap().floats,
        Floats::F32(vec![7.0])
    );
}

#[test]
fn every_truncation_is_refused() {
    let whole = file(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
        &six(|x| x.to_le_bytes().into()),
    );
    for length in 0..whole.len() {
        assert!(parse_table(&whole[..length]).is_err(), "{length} bytes");
    }
    assert!(error(&whole[..whole.len() - 1]).contains("promises 6 elements, the file holds 5"));
    assert!(error(&[&whole[..], b"x"].concat()).contains("more than one array"));
}

#[test]
fn wrong_headers_are_refused_with_the_reason() {
    let header = |descr: &str, order: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")
    };
    let nested = "[".repeat(9000);
    for (header, word) in [
        (
            header("'<i8'", "False", "(2, 3)"),
            "\"<i8\": float32 or float64",
        ),
        (header("'|O'", "False", "(2, 3)"), "\"|O\""),
        (header("[('a', '<f4')]", "False", "(2, 3)"), "structured"),
        (header(&nested, "False", "(2, 3)"), "structured"),
        (header("'<f4'", "Maybe", "(2, 3)"), "where False belongs"),
        (header("'<f4'", "False", "(6,)"), "shape (6,)"),
        (header("'<f4'", "False", "()"), "shape ()"),
        (header("'<f4'", "False", "(1, 2, 3)"), "shape (1, 2, 3)"),
        (header("'<f4'", "False", "(-1, 3)"), "length of an axis"),
        (
            header("'<f4'", "False", "(99999999999999999999, 3)"),
            "length of an axis",
        ),
        (
            header("'<f4'", "False", "(9999999999999, 9999999999999)"),
            "more than this program",
        ),
        (
            header("'<f4'", "False", "(9999999999, 9)"),
            "more than this program",
        ),
        (
            header("'<f4'", "False", &format!("({})", "1,".repeat(100))),
            "more than 64 axes",
        ),
        (
            "{'descr': '<f4', 'shape': (2, 3)}".to_owned(),
            "\"fortran_order\" is missing",
        ),
        (
            "{'descr': '<f4', 'color': 'red'}".to_owned(),
            "\"color\" is not known",
        ),
        ("{'descr': '<f4'} {".to_owned(), "where the end belongs"),
        ("".to_owned(), "where { belongs"),
        ("x".repeat(20_000), "20000 bytes long"),
    ] {
        let error = error(&file(&header, &[0; 24]));
        assert!(error.contains(word), "{header:.60}: {error}");
    }
    assert!(matches!(
        parse_table(&b"PK\x03\x04 something"[..]),
        Err(NpyError::NotNpy)
    ));
    assert!(error(b"\x93NUMPY\x09\x00\x00\x00").contains("version 9"));
}

#[test]
fn what_is_written_is_read_again_and_starts_at_a_multiple_of_64() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    let values = [1.5f64, f64::NAN, -0.0, 4.0];
    write(&path, &[2, 2], &values).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len() % 64, 32);
    let Floats::F64(read) = parse_table(bytes.as_slice()).unwrap().floats else {
        panic!("type")
    };
    assert_eq!(read.map_bits(), values.to_vec().map_bits());
    for shape in [vec![3], vec![3, 4], vec![3, 4, 5], vec![]] {
        let bytes = Header::bytes("<i4", &shape_text(&shape));
        assert_eq!(bytes.len() % 64, 0);
        assert_eq!(Header::read(&mut bytes.as_slice()).unwrap().shape, shape);
    }
}

trait MapBits {
    fn map_bits(&self) -> Vec<u64>;
}

impl MapBits for Vec<f64> {
    fn map_bits(&self) -> Vec<u64> {
        self.iter().map(|x| x.to_bits()).collect()
    }
}
