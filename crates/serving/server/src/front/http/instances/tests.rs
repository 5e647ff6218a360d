//! Which bodies of protocol V1 are refused and why, and how results are nested.

use albacore_engine::Columns;
use proptest::prelude::*;

use super::super::super::sample_model::sample_model;
use super::*;

fn model() -> ModelInfo {
    ModelInfo {
        columns: Columns {
            names: ["age", "amount"].map(str::to_owned).to_vec(),
            types: Vec::new(),
        },
        ..sample_model(2, Kind::Contribs)
    }
}

/// The rows of a body, or the error message.
fn rows_of(model: &ModelInfo, body: &str) -> Result<Vec<f32>, String> {
    let call = parse(model, body.as_bytes(), Kind::Value).map_err(|error| error.to_string())?;
    let mut memory = vec![0; call.rows * model.features * call.datatype.element().bytes()];
    let written = call.write_rows(model, &mut memory);
    written.map_err(|error| error.to_string())?;
    let values = memory.as_chunks().0.iter();
    Ok(values.map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

fn rows(body: &str) -> Result<Vec<f32>, String> {
    rows_of(&model(), body)
}

#[test]
fn rows_are_lists_or_objects_in_any_order_of_columns() {
    for body in [
        r#"{"instances": [[1, 2], [3.5, -4]]}"#,
        r#"{"signature_name": "x", "instances": [[1,2],[3.5,-4]], "more": [[[]]]}"#,
        r#"{"inputs": [[1, 2], [3.5, -4]]}"#,
        r#"{"instances": [{"age": 1, "amount": 2}, {"amount": -4, "age": 3.5}]}"#,
        r#"{"instances": [{"\u0061ge": 1, "amount": 2}, {"age": 3.5, "amount": -4}]}"#,
    ] {
        assert_eq!(rows(body).unwrap(), [1.0, 2.0, 3.5, -4.0], "{body}");
    }
    for body in [
        r#"{"instances": [[null, 1]]}"#,
        r#"{"instances": [{"amount": 1, "age": null}]}"#,
    ] {
        let values = rows(body).unwrap();
        assert!(values[0].is_nan() && values[1] == 1.0, "{body}");
    }
}

#[test]
fn brackets_in_names_of_columns_are_no_brackets_of_lists() {
    let model = ModelInfo {
        columns: Columns {
            names: ["a]", "[b"].map(str::to_owned).to_vec(),
            types: Vec::new(),
        },
        ..model()
    };
    for body in [
        r#"{"instances": [{"a]": 1, "[b": 2}]}"#,
        r#"{"instances": [{"[b": 2, "a]": 1}]}"#,
    ] {
        assert_eq!(rows_of(&model, body).unwrap(), [1.0, 2.0], "{body}");
    }
}

fn assert_refused(cases: &[(&str, &str)]) {
    for (body, message) in cases {
        let error = rows(body).unwrap_err();
        assert!(error.contains(message), "{body}: {error}");
    }
}

#[test]
fn what_is_wrong_with_a_body_or_a_list_is_named() {
    assert_refused(&[
        ("{}", r#"the body has no "instances""#),
        (
            r#"{"instances": {}}"#,
            r#""instances" is not a list of rows"#,
        ),
        (r#"{"instances": []}"#, r#""instances" is empty"#),
        (
            r#"{"instances": [1, 2]}"#,
            r#"has values where rows should be"#,
        ),
        (
            r#"{"instances": [[1, 2], [3]]}"#,
            r#"row 1 of "instances" has 1 values, not 2"#,
        ),
        (
            r#"{"instances": [[1, 2, 3]]}"#,
            r#"row 0 of "instances" has 3 values, not 2"#,
        ),
        (
            r#"{"instances": [[1, "2"]]}"#,
            r#"value 1 of "instances" (FP32)"#,
        ),
        (r#"{"instances": [[[1], [2]]]}"#, r#""instances""#),
        (
            r#"{"instances": [[1, NaN]]}"#,
            r#"`NaN` is not a FP32 number"#,
        ),
        (
            r#"{"instances": [[],[],[],[]]}"#,
            r#"has less data than 4 rows of 2 values"#,
        ),
        (
            r#"{"instances": [[1, 2], {"age": 3, "amount": 4}]}"#,
            r#"a row is not an array"#,
        ),
        (
            r#"{"instances": [[1, 2]"#,
            "the body is not an infer request",
        ),
        (r#"[[1, 2]]"#, "the body is a list: send an object"),
        ("[1, 2", "the body is a list: send an object"),
        ("7", "the body is not an infer request"),
    ]);
}

#[test]
fn what_is_wrong_with_an_object_is_named() {
    assert_refused(&[
        (
            r#"{"instances": [{"age": 1}]}"#,
            r#"column "amount" is missing"#,
        ),
        (
            r#"{"instances": [{"age": 1, "income": 2000000}]}"#,
            r#"instance 0, model "m": column "income" is unknown"#,
        ),
        (
            r#"{"instances": [{"age": 1, "amount": 2}, {"age": 100000000000}]}"#,
            r#"instance 1, model "m": column "amount" is missing"#,
        ),
        (
            r#"{"instances": [{"age": 1, "age": 2, "amount": 2}]}"#,
            r#"column "age" comes twice"#,
        ),
        (
            r#"{"instances": [{"age": 1, "amount": "many"}]}"#,
            r#"column "amount": value 1 of "instances" (FP32): `"many"` is not"#,
        ),
        (
            r#"{"instances": [{"age": 1, "amount": 2}, [3, 4]]}"#,
            r#"an object, as the first"#,
        ),
    ]);
}

#[test]
fn columns_without_names_take_lists_alone() {
    let model = sample_model(2, Kind::Contribs);
    let error = rows_of(&model, r#"{"instances": [{"age": 1, "amount": 2}]}"#).unwrap_err();
    assert!(error.contains("have no names: send lists"), "{error}");
    assert!(rows_of(&model, r#"{"instances": [[1, 2]]}"#).is_ok());
}

#[test]
fn a_model_without_contributions_has_no_explanations() {
    let model = sample_model(2, Kind::Leaf);
    let error = parse(&model, br#"{"instances": [[1, 2]]}"#, Kind::Contribs).unwrap_err();
    assert!(
        error.message.contains(r#"output "contribs" is unknown"#),
        "{error}"
    );
}

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
        print_rows(&mut body, &output, &values);
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

proptest! {
    /// Lists and objects of the same values are the same rows.
    #[test]
    fn both_forms_are_the_same_rows(
        values in prop::collection::vec((any::<i32>(), prop::option::of(-1e6..1e6_f32)), 1..20),
    ) {
        let text = |value: Option<f32>| value.map_or("null".to_owned(), |value| value.to_string());
        let lists = values.iter().map(|&(age, amount)| format!("[{age}, {}]", text(amount)));
        let objects = values
            .iter()
            .map(|&(age, amount)| format!(r#"{{"amount": {}, "age": {age}}}"#, text(amount)));
        let body = |rows: Vec<String>| format!(r#"{{"instances": [{}]}}"#, rows.join(","));
        let bits = |rows: Result<Vec<f32>, String>| {
            rows.map(|rows| rows.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        let lists = bits(rows(&body(lists.collect())));
        prop_assert_eq!(lists.as_ref().map(Vec::len), Ok(2 * values.len()));
        prop_assert_eq!(lists, bits(rows(&body(objects.collect()))));
    }

    #[test]
    fn arbitrary_bodies_never_panic(body in r#"[\[\]{}":,a-z0-9 ]{0,64}"#) {
        let _ = rows(&format!(r#"{{"instances": {body}}}"#));
        let _ = rows(&body);
    }
}
