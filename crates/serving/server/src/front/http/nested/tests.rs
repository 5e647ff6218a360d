//! Nesting of results, and classes derived from values.

use albacore_engine::Kind;

use super::*;

#[test]
fn results_are_nested_as_the_shape_of_a_row() {
    let values: Vec<u8> = (1..=8_u8)
        .flat_map(|value| f32::from(value).to_le_bytes())
        .collect();
    let print = |row_shape: &[usize]| {
        let output = OutputInfo {
            kind: Kind::Value,
            element: ElementType::F32,
            row_shape: row_shape.to_vec(),
        };
        let mut body = Vec::new();
        print_rows(&mut body, Frame::Predictions, &output, &values);
        String::from_utf8(body).unwrap()
    };
    assert_eq!(print(&[]), "1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0");
    assert_eq!(print(&[4]), "[1.0,2.0,3.0,4.0],[5.0,6.0,7.0,8.0]");
    assert_eq!(
        print(&[2, 2]),
        "[[1.0,2.0],[3.0,4.0]],[[5.0,6.0],[7.0,8.0]]"
    );
    assert_eq!(
        print(&[2, 2, 1]),
        "[[[1.0],[2.0]],[[3.0],[4.0]]],[[[5.0],[6.0]],[[7.0],[8.0]]]"
    );
}

fn printed(rule: ClassRule, labels: &[&str], row_shape: &[usize], values: &[f64]) -> String {
    let output = OutputInfo {
        kind: Kind::Value,
        element: ElementType::F64,
        row_shape: row_shape.to_vec(),
    };
    let classes = ModelClasses {
        rule,
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let mut body = Vec::new();
    print_classes(&mut body, Frame::Predictions, &output, &classes, &bytes);
    String::from_utf8(body).unwrap()
}

#[test]
fn classes_follow_from_values_as_predict_makes_them() {
    let half = printed(ClassRule::AboveHalf, &[], &[], &[0.5, 0.500_001, f64::NAN]);
    assert_eq!(half, "0,1,0");
    let named = printed(
        ClassRule::AboveHalf,
        &["\"no\"", "\"yes\""],
        &[],
        &[0.1, 0.9],
    );
    assert_eq!(named, "\"no\",\"yes\"");
    let largest = [0.2, 0.4, 0.4, 0.5, 0.2, 0.3];
    assert_eq!(printed(ClassRule::Largest, &[], &[3], &largest), "1,0");
    assert_eq!(printed(ClassRule::Given, &[], &[], &[2.0, 0.0]), "2,0");
    let each = printed(ClassRule::EachAboveHalf, &[], &[2], &[0.6, 0.4, 0.5, 0.9]);
    assert_eq!(each, "[1,0],[0,1]");
}

#[test]
fn lines_have_no_brackets() {
    let output = OutputInfo {
        kind: Kind::Value,
        element: ElementType::F32,
        row_shape: vec![2],
    };
    let values: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let mut body = Frame::Lines.begin();
    print_rows(&mut body, Frame::Lines, &output, &values);
    Frame::Lines.end(&mut body);
    assert_eq!(body, b"1.0,2.0\n3.0,4.0\n");
    let single = OutputInfo {
        row_shape: Vec::new(),
        ..output
    };
    let mut pairs = Vec::new();
    print_pairs(
        &mut pairs,
        Frame::Predictions,
        &single,
        &0.25_f32.to_le_bytes(),
    );
    assert_eq!(pairs, b"[0.75,0.25]");
}
