//! Request bodies in every table format, and the errors of invalid ones.

use albacore_engine::Columns;
use proptest::prelude::*;

use super::*;

fn nameless() -> ModelInfo {
    ModelInfo {
        name: "m".to_owned(),
        features: 2,
        ..ModelInfo::default()
    }
}

fn model() -> ModelInfo {
    ModelInfo {
        columns: Columns {
            names: ["age", "amount"].map(str::to_owned).to_vec(),
            types: Vec::new(),
            ..Columns::default()
        },
        ..nameless()
    }
}

/// Returns the rows of a table, or the error message.
fn written(model: &ModelInfo, table: Result<Table<'_>, InvalidRows>) -> Result<Vec<f32>, String> {
    let table = table.map_err(|error| error.to_string())?;
    let mut memory = vec![0xa5; table.rows * model.features * 4];
    let written = table.write(model, Datatype::Fp32, &mut memory);
    written.map_err(|error| error.to_string())?;
    let values = memory.as_chunks().0.iter();
    Ok(values.map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

fn rows_of(model: &ModelInfo, body: &str) -> Result<Vec<f32>, String> {
    written(model, Table::from_instances(model, body.as_bytes()))
}

fn scored(body: &str) -> Result<Vec<f32>, String> {
    let model = model();
    written(&model, Table::from_json(&model, body.as_bytes()))
}

fn csv(body: &str) -> Result<Vec<f32>, String> {
    let model = model();
    written(&model, Table::from_csv(&model, body.as_bytes(), None))
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
fn brackets_in_column_names_do_not_count_as_lists() {
    let model = ModelInfo {
        columns: Columns {
            names: ["a]", "[b"].map(str::to_owned).to_vec(),
            types: Vec::new(),
            ..Columns::default()
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
fn invalid_bodies_and_lists_are_rejected_with_the_reason() {
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
fn invalid_objects_are_rejected_with_the_reason() {
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
            r#"column "age" is given twice"#,
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
fn models_without_column_names_accept_lists_and_numbered_objects() {
    let model = nameless();
    let error = rows_of(&model, r#"{"instances": [{"age": 1, "amount": 2}]}"#).unwrap_err();
    assert!(error.contains("have no names: send lists"), "{error}");
    for body in [
        r#"{"instances": [[1, 2]]}"#,
        r#"{"instances": [{"1": 2, "0": 1}]}"#,
    ] {
        assert_eq!(rows_of(&model, body).unwrap(), [1.0, 2.0], "{body}");
    }
}

#[test]
fn the_forms_of_mlflow_are_the_same_rows_in_any_order_of_columns() {
    for body in [
        r#"{"dataframe_split": {"columns": ["age", "amount"], "data": [[1, 2], [3.5, -4]]}}"#,
        r#"{"dataframe_split": {"data": [[2, 1], [-4, 3.5]], "index": [0, 1], "columns": ["amount", "age"]}}"#,
        r#"{"dataframe_split": {"data": [[1,2],[3.5,-4]]}, "params": null}"#,
        r#"{"dataframe_records": [{"amount": 2, "age": 1}, {"age": 3.5, "amount": -4}]}"#,
        r#"{"inputs": [[1, 2], [3.5, -4]], "params": {}}"#,
        r#"{"inputs": {"amount": [2, -4], "age": [1, 3.5]}}"#,
        r#"{"inputs": {"age": [[1], [3.5]], "amount": [[2], [-4]]}}"#,
        r#"{"instances": [[1, 2], [3.5, -4]], "parameters": {"predict_fn": "predict"}}"#,
        r#"{"instances": [{"age": 1, "amount": 2}, {"amount": -4, "age": 3.5}]}"#,
    ] {
        assert_eq!(scored(body).unwrap(), [1.0, 2.0, 3.5, -4.0], "{body}");
    }
    for body in [
        "age,amount\n1,2\n3.5,-4\n",
        "amount,age\r\n2,1\r\n-4, 3.5",
        "\"amount\",\"age\"\n\"2\",1\n\n-4,3.5\n\n",
        "1,2\n3.5,-4",
        "\u{feff}1,2\n3.5,-4.0e0\n",
    ] {
        assert_eq!(csv(body).unwrap(), [1.0, 2.0, 3.5, -4.0], "{body}");
    }
    let values = csv("age,amount\n,NA\nNaN,True\nnull,0").unwrap();
    let is_missing: Vec<bool> = values.iter().map(|value| value.is_nan()).collect();
    assert_eq!(is_missing, [true, true, true, false, true, false]);
    assert_eq!((values[3], values[5]), (1.0, 0.0));
}

#[test]
fn a_numeric_first_line_is_the_header_if_the_content_type_says_so() {
    let model = nameless();
    let read = |header| written(&model, Table::from_csv(&model, b"1,0\n5,6\n", header));
    assert_eq!(read(None).unwrap(), [1.0, 0.0, 5.0, 6.0]);
    assert_eq!(read(Some(true)).unwrap(), [6.0, 5.0]);
}

#[test]
fn invalid_mlflow_bodies_are_rejected_with_the_reason() {
    for (body, part) in [
        ("{}", "it has none"),
        (
            r#"{"inputs": [[1, 2]], "instances": [[1, 2]]}"#,
            r#"it has "instances" and "inputs""#,
        ),
        ("[[1, 2]]", "the body is a list"),
        (
            r#"{"inputs": [1, 2]}"#,
            r#""inputs" has values where rows should be"#,
        ),
        (r#"{"inputs": {}}"#, r#"column "age", "amount" are missing"#),
        (
            r#"{"inputs": {"age": [1], "amount": [1, 2]}}"#,
            r#"2 values in column "amount""#,
        ),
        (
            r#"{"inputs": {"age": 1, "amount": [1]}}"#,
            r#"column "age", which is not a list"#,
        ),
        (
            r#"{"inputs": {"age": [], "amount": []}}"#,
            r#""inputs" is empty"#,
        ),
        (
            r#"{"inputs": {"age": [[1, 2]], "amount": [3]}}"#,
            r#"row 0 of "inputs" has 2 values"#,
        ),
    ] {
        let error = scored(body).unwrap_err();
        assert!(error.contains(part), "{body}: {error}");
    }
}

#[test]
fn invalid_data_frames_and_parameters_are_rejected_with_the_reason() {
    for (body, part) in [
        (r#"{"dataframe_split": [[1]]}"#, "is not an object: send"),
        (
            r#"{"dataframe_split": {"columns": ["age", "amount"]}}"#,
            "missing field `data`",
        ),
        (
            r#"{"dataframe_split": {"rows": [], "data": []}}"#,
            "unknown field `rows`",
        ),
        (
            r#"{"dataframe_split": {"columns": ["age", "sum"], "data": [[1, 2]]}}"#,
            r#""dataframe_split" for model "m": column "sum" is unknown"#,
        ),
        (
            r#"{"dataframe_split": {"columns": ["amount", "age"], "data": [[1, 2], [3]]}}"#,
            "row 1 of \"dataframe_split\" has 1 values, not 2",
        ),
        (
            r#"{"dataframe_split": {"columns": ["amount", "age"], "data": [[1, [2]], [3]]}}"#,
            "FP32",
        ),
        (
            r#"{"dataframe_records": [[1, 2]]}"#,
            "is not a list of objects: send",
        ),
        (
            r#"{"dataframe_records": [{"age": 1}]}"#,
            r#"record 0, model "m": column "amount" is missing"#,
        ),
        (
            r#"{"inputs": [[1, 2]], "params": {"ntree_limit": 3}}"#,
            r#"parameter "ntree_limit" with value 3"#,
        ),
        (
            r#"{"inputs": [[1, 2]], "params": {"predict_fn": "margin"}}"#,
            r#"with value "margin" is not known"#,
        ),
        (
            r#"{"inputs": [[1, 2]], "parameters": [1]}"#,
            "the parameters are not an object",
        ),
    ] {
        let error = scored(body).unwrap_err();
        assert!(error.contains(part), "{body}: {error}");
    }
}

#[test]
fn csv_errors_contain_the_line_number() {
    for (body, part) in [
        ("", "is empty"),
        ("age,amount\n", "is empty"),
        (
            "age,sum\n1,2",
            "the first line of the text/csv body: model \"m\": column \"sum\" is unknown",
        ),
        (
            "age,amount\n1\n",
            "line 2 of the text/csv body: has 1 fields",
        ),
        ("1,2\n1,2,3", "line 2 of the text/csv body: has 3 fields"),
        (
            "amount,age\n\n1,many",
            "line 3 of the text/csv body: field 2, \"many\", is not a number",
        ),
        ("age,amount\n\"1,2\n", "a quoted field is not closed"),
        ("age,amount\n\"1\"2,2\n", "not followed by a comma"),
    ] {
        let error = csv(body).unwrap_err();
        assert!(error.contains(part), "{body}: {error}");
    }
    let model = model();
    let error = Table::from_csv(&model, b"1,\xff", None).unwrap_err();
    assert!(
        error.message.contains("is not UTF-8 after 2 bytes"),
        "{error}"
    );
}

proptest! {
    /// Lists and objects of the same values result in the same rows.
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
        prop_assert_eq!(&lists, &bits(rows(&body(objects.collect()))));
        let swapped = values.iter().map(|&(age, amount)| format!("[{}, {age}]", text(amount)));
        let swapped: Vec<String> = swapped.collect();
        let data = swapped.join(",");
        let split = format!(r#"{{"dataframe_split": {{"columns": ["amount", "age"], "data": [{data}]}}}}"#);
        prop_assert_eq!(&lists, &bits(scored(&split)));
        let lines = swapped.iter().map(|row| row.trim_matches(['[', ']']));
        let lines = lines.collect::<Vec<_>>().join("\n");
        prop_assert_eq!(lists, bits(csv(&format!("amount,age\n{lines}"))));
    }

    #[test]
    fn arbitrary_bodies_never_panic(body in r#"[\[\]{}":,a-z0-9 ]{0,64}"#) {
        let _ = rows(&format!(r#"{{"instances": {body}}}"#));
        let _ = rows(&body);
        for key in ["inputs", "instances", "dataframe_split", "dataframe_records"] {
            let _ = scored(&format!(r#"{{"{key}": {body}}}"#));
        }
        let _ = csv(&body);
    }
}

/// A model whose requests may omit columns.
fn sparse() -> ModelInfo {
    ModelInfo {
        missing_is_nan: true,
        ..model()
    }
}

#[test]
fn missing_columns_are_nan_if_the_model_permits_it() {
    let model = sparse();
    let json = |body: &str| written(&model, Table::from_json(&model, body.as_bytes()));
    for body in [
        r#"{"dataframe_split": {"columns": ["amount"], "data": [[2], [4]]}}"#,
        r#"{"dataframe_records": [{"amount": 2}, {"amount": 4, "age": null}]}"#,
        r#"{"instances": [{"amount": 2}, {"amount": 4}]}"#,
        r#"{"inputs": {"amount": [2, 4]}}"#,
    ] {
        let values = json(body).unwrap();
        assert!(values[0].is_nan() && values[2].is_nan(), "{body}");
        assert_eq!((values[1], values[3]), (2.0, 4.0), "{body}");
    }
    let values = written(&model, Table::from_csv(&model, b"amount\n2\n4\n", None)).unwrap();
    assert!(values[0].is_nan() && values[2].is_nan());
    assert_eq!((values[1], values[3]), (2.0, 4.0));
    for (body, part) in [
        (r#"{"instances": [{"amount": 2}, {}]}"#, "instance 1, model"),
        (r#"{"instances": [{"amuont": 2}]}"#, "\"amuont\" is unknown"),
        (
            r#"{"dataframe_split": {"columns": [], "data": [[]]}}"#,
            "are missing",
        ),
        (
            r#"{"dataframe_split": {"columns": ["x"], "data": [[1]]}}"#,
            "\"x\" is unknown",
        ),
        (
            r#"{"dataframe_split": {"columns": ["amount"], "data": [[1, 2]]}}"#,
            "has 2 values, not 1",
        ),
        // Without column names the missing column is unknown.
        (r#"{"inputs": [[1]]}"#, "has 1 values, not 2"),
    ] {
        let message = json(body).unwrap_err();
        assert!(message.contains(part), "{message}");
    }
    let message = written(&model, Table::from_csv(&model, b"amount\n2,3\n", None)).unwrap_err();
    assert!(
        message.contains("line 2 of the text/csv body: has 2 fields where the first line has 1")
    );
}
