//! Tests of the JSON and UBJSON readers, value by value.

use crate::error::{ModelError, ModelResult};
use crate::json;
use crate::model::{Format, Model};
use crate::ubjson;
use crate::value_reader::ValueReader;

fn json_floats(text: &str) -> ModelResult<Vec<f32>> {
    json::JsonReader::new(text.as_bytes()).floats(usize::MAX)
}

fn offset_of<T>(result: ModelResult<T>) -> usize {
    match result {
        Err(ModelError::Syntax { offset, .. }) => offset,
        _ => panic!("no syntax error"),
    }
}

#[test]
fn json_numbers_are_rounded_once() {
    // The decimal is just above the midpoint of two f32 values, and rounds to that midpoint in f64:
    // two roundings would give the even value below, one rounding gives the value above.
    let text = "1.00000005960464477540";
    assert_eq!(text.parse::<f64>().map(|wide| wide as f32), Ok(1.0));
    assert_eq!(json_floats(&format!("[{text}]")), Ok(vec![1.000_000_1]));
    let read = json_floats(" [ 1E-45,-0.0 , NaN,Infinity,-Infinity,3e39 ] ").expect("numbers");
    let bits: Vec<u32> = read.iter().map(|value| value.to_bits()).collect();
    let infinity = f32::INFINITY.to_bits();
    assert_eq!(bits[..2], [1, 0x8000_0000]);
    assert!(read[2].is_nan());
    assert_eq!(bits[3..], [infinity, f32::NEG_INFINITY.to_bits(), infinity]);
}

#[test]
fn json_integers_accept_booleans_and_reject_fractions() {
    let integers = |text: &str| json::JsonReader::new(text.as_bytes()).integers(usize::MAX);
    assert_eq!(integers("[true,false,-7]"), Ok(vec![1, 0, -7]));
    assert_eq!(integers("[]"), Ok(vec![]));
    for text in [
        "[1.5]",
        "[1e3]",
        "[2147483648]",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1",
        "1",
        "[\"1\"]",
    ] {
        offset_of(integers(text));
    }
}

#[test]
fn json_strings_are_unescaped() {
    let string = |text: &str| json::JsonReader::new(text.as_bytes()).string();
    assert_eq!(
        string(r#""a\"b\\\n\u00e9\ud800""#),
        Ok("a\"b\\\né\u{fffd}".to_owned())
    );
    assert_eq!(string("\"naïve\""), Ok("naïve".to_owned()));
    for text in [
        r#""open"#,
        r#""\x""#,
        r#""\u12g4""#,
        r#""\u12"#,
        "\"\\",
        "word",
    ] {
        offset_of(string(text));
    }
}

#[test]
fn json_skips_any_value_and_reports_the_offset_of_an_error() {
    let skip = |text: &str| {
        let mut reader = json::JsonReader::new(text.as_bytes());
        reader.skip().and_then(|()| reader.finish())
    };
    assert_eq!(
        skip(r#" {"a":[1,-2.5e3,"x",null,true,{}],"b":{"c":[]}} "#),
        Ok(())
    );
    assert_eq!(offset_of(skip(r#"{"a":[1,nonsense]}"#)), 16);
    assert_eq!(offset_of(skip(r#"{"a" 1}"#)), 5);
    assert_eq!(offset_of(skip("1 2")), 2);
}

#[test]
fn an_error_contains_the_path_of_its_field() {
    let text = r#"{"a":{"b":[0,{"c":wrong}]}}"#;
    let mut reader = json::JsonReader::new(text.as_bytes());
    match reader.skip() {
        Err(ModelError::Syntax { path, .. }) => assert_eq!(path, "a.b[1].c"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ubjson_reads_typed_counted_and_open_arrays_alike() {
    let floats = |bytes: &[u8]| ubjson::UbjsonReader::new(bytes).floats(usize::MAX);
    let one_two = Ok(vec![1.0, 2.0]);
    assert_eq!(floats(b"[$d#i\x02\x3f\x80\0\0\x40\0\0\0"), one_two);
    assert_eq!(
        floats(b"[$D#i\x02\x3f\xf0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0"),
        one_two
    );
    assert_eq!(floats(b"[#U\x02d\x3f\x80\0\0i\x02"), one_two);
    assert_eq!(floats(b"[Ni\x01Nd\x40\0\0\0N]"), one_two);
    let integers = |bytes: &[u8]| ubjson::UbjsonReader::new(bytes).integers(usize::MAX);
    assert_eq!(
        integers(b"[i\xffU\xffI\x01\0l\0\x01\0\0TF]"),
        Ok(vec![-1, 255, 256, 65536, 1, 0])
    );
    assert_eq!(integers(b"[$L#i\x01\0\0\0\0\0\0\0\x07"), Ok(vec![7]));
}

#[test]
fn ubjson_counts_reserve_no_more_than_the_bytes_that_follow() {
    let floats = |bytes: &[u8]| ubjson::UbjsonReader::new(bytes).floats(usize::MAX);
    for bytes in [
        &b"[$d#L\x7f\xff\xff\xff\xff\xff\xff\xff"[..],
        b"[$d#i\xff",
        b"[$Z#l\x7f\xff\xff\xff",
        b"[#l\x7f\xff\xff\xff",
        b"[$d#i\x02\x3f\x80\0\0",
        b"[$d]",
        b"[i",
        b"d\0\0\0\0",
        b"[$q#i\x01\0",
        b"[$L#i\x01\0\0\0",
    ] {
        offset_of(floats(bytes));
    }
    assert_eq!(
        ubjson::UbjsonReader::new(b"[$L#i\x01\0\0\0\x01\0\0\0\0")
            .integers(usize::MAX)
            .map_err(drop),
        Err(()),
        "beyond 32 bits"
    );
}

#[test]
fn ubjson_skips_any_value() {
    let skip = |bytes: &[u8]| {
        let mut reader = ubjson::UbjsonReader::new(bytes);
        reader.skip().and_then(|()| reader.finish())
    };
    assert_eq!(
        skip(b"{i\x01aSi\x02hii\x01b[ZTFCxH\x69\x012]i\x01c{$i#i\x01i\x01z\x05}\n"),
        Ok(())
    );
    assert_eq!(offset_of(skip(b"{i\x01aQ}")), 5);
    assert_eq!(offset_of(skip(b"{i\x01aZ")), 5);
    assert_eq!(offset_of(skip(b"Z more")), 1);
}

#[test]
fn a_lightgbm_estimator_file_has_class_labels_and_the_booster_text() {
    let text = "tree\nversion=v4\nnum_tree_per_iteration=1\nmax_feature_idx=0\n\
        objective=binary sigmoid:1\n\nTree=0\nnum_leaves=1\nleaf_value=0.5\n\nend of trees\n";
    let file = |classes: &str, text: &str| {
        let text = text.replace('\n', "\\n");
        format!(
            r#"{{"scikit_learn":"1.9.1","estimator":"LGBMClassifier","classes":[{classes}],"lightgbm":"{text}"}}"#
        )
    };
    let two = r#""\"no\"","\"yes\"""#;
    let model = Model::parse(file(two, text).as_bytes()).expect("a classifier");
    let parts = model.parts();
    assert_eq!(parts.format, Format::LightgbmText);
    assert_eq!(parts.objective, "binary");
    let labels = ["\"no\"", "\"yes\""].map(str::to_owned);
    assert_eq!(parts.classes.as_deref(), Some(&labels[..]));
    let three = format!("{two},\"3\"");
    for (file, part) in [
        (file(&three, text), "3 classes"),
        (file(two, "tree\nversion=v4\n"), "lightgbm"),
        (file("\"no\"", text), "classes"),
    ] {
        let error = Model::parse(file.as_bytes()).expect_err(&file).to_string();
        assert!(error.contains(part), "{error}");
    }
}
