//! Texts of categories are converted to their codes in every request format and column order; other
//! texts are rejected with an error that names them.

use std::sync::Arc;

use albacore_engine::Columns;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::Table;
use crate::columns::{BinarySize, ColumnKind, ColumnTensors, DeclaredColumn};
use crate::datatype::Datatype;
use crate::labels::push_text;

/// Texts that are hard to parse: brackets, separators, escapes, missing values, a number.
const COLORS: [&str; 8] = ["red", "a, b", "[x", "]]", "\"q\"\\", "\u{e9}\n", "NA", "7"];
const SIZES: [&str; 3] = ["10", "20", "true"];
const NAMES: [&str; 4] = ["amount", "color", "size", "age"];

/// A model with categories in its second and third column.
fn model(unknown: UnknownCategory) -> ModelInfo {
    let table = |texts: &[&str]| {
        let texts = texts.iter().map(|text| (*text).to_owned());
        Arc::new(CategoryTable::new(texts, unknown))
    };
    ModelInfo {
        name: "m".to_owned(),
        features: NAMES.len(),
        columns: Columns {
            names: NAMES.map(str::to_owned).to_vec(),
            types: Vec::new(),
            categories: [(1, table(&COLORS)), (2, table(&SIZES))].into(),
        },
        ..ModelInfo::default()
    }
}

fn floats(memory: &[u8]) -> Vec<f32> {
    let values = memory.as_chunks().0.iter();
    values.map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// Returns the rows of a table, or the error message.
fn written(model: &ModelInfo, table: Result<Table<'_>, InvalidRows>) -> Result<Vec<f32>, String> {
    let table = table.map_err(|error| error.to_string())?;
    let mut memory = vec![0xa5; table.rows * model.features * 4];
    let written = table.write(model, Datatype::Fp32, &mut memory);
    written.map_err(|error| error.to_string())?;
    Ok(floats(&memory))
}

fn scored(model: &ModelInfo, body: &Value) -> Result<Vec<f32>, String> {
    let body = body.to_string();
    written(model, Table::from_json(model, body.as_bytes()))
}

fn instances(model: &ModelInfo, body: &Value) -> Result<Vec<f32>, String> {
    let body = body.to_string();
    written(model, Table::from_instances(model, body.as_bytes()))
}

/// A row: a number, the code of a color, the code of a size, a number.
type Row = (i8, usize, usize, i8);

fn any_rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (any::<i8>(), 0..COLORS.len(), 0..SIZES.len(), any::<i8>());
    prop::collection::vec(row, 1..5)
}

/// A permutation of the columns.
fn any_order() -> impl Strategy<Value = Vec<usize>> {
    Just(vec![0, 1, 2, 3]).prop_shuffle()
}

fn codes(rows: &[Row]) -> Vec<f32> {
    let codes = rows.iter().flat_map(|&(amount, color, size, age)| {
        [f32::from(amount), color as f32, size as f32, f32::from(age)]
    });
    codes.collect()
}

/// The JSON value of a column as clients send it.
fn value(&(amount, color, size, age): &Row, column: usize) -> Value {
    match column {
        0 => json!(amount),
        1 => json!(COLORS[color]),
        2 => json!(SIZES[size]),
        _ => json!(age),
    }
}

fn lists(rows: &[Row], order: &[usize]) -> Value {
    let list = |row| order.iter().map(|&column| value(row, column)).collect();
    Value::Array(rows.iter().map(list).collect())
}

fn objects(rows: &[Row], order: &[usize]) -> Value {
    let object = |row| {
        let members = order
            .iter()
            .map(|&it| (NAMES[it].to_owned(), value(row, it)));
        Value::Object(members.collect::<Map<_, _>>())
    };
    Value::Array(rows.iter().map(object).collect())
}

/// CSV with a header line and quoted texts.
fn csv(rows: &[Row], order: &[usize]) -> String {
    let line = |fields: Vec<String>| fields.join(",") + "\n";
    let names = line(order.iter().map(|&it| NAMES[it].to_owned()).collect());
    let field = |value: Value| match value {
        Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        number => number.to_string(),
    };
    let rows = rows
        .iter()
        .map(|row| line(order.iter().map(|&it| field(value(row, it))).collect()));
    names + &rows.collect::<String>()
}

/// Returns the rows of a request with one tensor per column; `write` writes a column.
fn tensors(
    rows: &[Row],
    order: &[usize],
    write: impl Fn(&ColumnKind, &[Value], &mut [u8]) -> Result<(), InvalidRows>,
) -> Vec<f32> {
    let model = model(UnknownCategory::Refused);
    let shape = [rows.len() as i64];
    let declared = order.iter().map(|&column| DeclaredColumn {
        name: NAMES[column],
        datatype: if matches!(column, 1 | 2) {
            "BYTES"
        } else {
            "FP32"
        },
        shape: &shape,
    });
    let columns = ColumnTensors::check(&model, &declared.collect::<Vec<_>>()).unwrap();
    let mut memory = vec![0xa5; rows.len() * NAMES.len() * 4];
    columns
        .write(&mut memory, |position, kind, memory| {
            let values: Vec<_> = rows.iter().map(|row| value(row, order[position])).collect();
            write(kind, &values, memory)
        })
        .unwrap();
    floats(&memory)
}

fn packed(values: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match value {
            Value::String(text) => push_text(&mut bytes, text),
            number => {
                let number = number.as_f64().unwrap_or_default() as f32;
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
    bytes
}

fn typed(values: &[Value]) -> InferTensorContents {
    let texts = values.iter().filter_map(Value::as_str);
    let numbers = values.iter().filter_map(Value::as_f64);
    InferTensorContents {
        bytes_contents: texts.map(|text| text.as_bytes().to_vec()).collect(),
        fp32_contents: numbers.map(|number| number as f32).collect(),
        ..Default::default()
    }
}

proptest! {
    #[test]
    fn texts_are_their_codes_in_every_form_and_order(rows in any_rows(), order in any_order()) {
        let model = model(UnknownCategory::Refused);
        let wanted = Ok(codes(&rows));
        let names: Vec<&str> = order.iter().map(|&it| NAMES[it]).collect();
        let (in_order, objects) = (lists(&rows, &[0, 1, 2, 3]), objects(&rows, &order));
        for list in [&in_order, &objects] {
            prop_assert_eq!(&instances(&model, &json!({"instances": list, "x": [1, "]"]})), &wanted);
        }
        let columns = order.iter().map(|&it| {
            let values = rows.iter().map(|row| value(row, it)).collect();
            (NAMES[it].to_owned(), Value::Array(values))
        });
        for body in [
            json!({"dataframe_split": {"columns": names, "data": lists(&rows, &order)}}),
            json!({"dataframe_split": {"data": in_order}}),
            json!({"dataframe_records": objects}),
            json!({"inputs": columns.collect::<Map<_, _>>()}),
        ] {
            prop_assert_eq!(&scored(&model, &body), &wanted, "{}", body);
        }
        let json = |kind: &ColumnKind, values: &[Value], memory: &mut [u8]| {
            kind.write_json(&Value::Array(values.to_vec()).to_string(), memory)
        };
        let nested = |kind: &ColumnKind, values: &[Value], memory: &mut [u8]| {
            let lists: Vec<_> = values.iter().map(|value| json!([value])).collect();
            kind.write_json(&Value::Array(lists).to_string(), memory)
        };
        let binary = |kind: &ColumnKind, values: &[Value], memory: &mut [u8]| {
            let bytes = packed(values);
            assert!(kind.binary_size(values.len()).admits(bytes.len()));
            kind.write_bytes(&bytes, memory)
        };
        let contents = |kind: &ColumnKind, values: &[Value], memory: &mut [u8]| {
            kind.write_contents(&typed(values), memory)
        };
        let wanted = codes(&rows);
        prop_assert_eq!(&tensors(&rows, &order, json), &wanted);
        prop_assert_eq!(&tensors(&rows, &order, nested), &wanted);
        prop_assert_eq!(&tensors(&rows, &order, binary), &wanted);
        prop_assert_eq!(&tensors(&rows, &order, contents), &wanted);
    }

    #[test]
    fn fields_of_csv_are_categories_in_any_order(rows in any_rows(), order in any_order()) {
        // Line breaks in fields are not supported; numbers among texts are ambiguous.
        let is_plain = |&(_, color, size, _): &Row| ![5, 7].contains(&color) && size == 2;
        let rows: Vec<Row> = rows.into_iter().filter(is_plain).collect();
        prop_assume!(!rows.is_empty());
        let model = model(UnknownCategory::Refused);
        let body = csv(&rows, &order);
        let table = Table::from_csv(&model, body.as_bytes(), Some(true));
        prop_assert_eq!(written(&model, table), Ok(codes(&rows)), "{}", body);
    }

    #[test]
    fn any_bytes_and_texts_are_written_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..24), text in "[\\[\\]\",a\\\\ ]{0,16}", rows in 1_usize..4,
    ) {
        let table = CategoryTable::new(["a".to_owned()], UnknownCategory::Missing);
        let mut memory = vec![0; rows * 4];
        let _ = write_bytes(&table, &bytes, &mut memory);
        if write_json(&table, &text, &mut memory).is_ok() {
            let values = serde_json::from_str::<Vec<Value>>(&text);
            prop_assert_eq!(values.ok().map(|it| it.len()), Some(rows), "{}", text);
        }
    }
}

fn refusal(result: Result<Vec<f32>, String>) -> String {
    result.unwrap_err()
}

#[test]
fn unknown_texts_are_refused_or_missing_as_in_the_library() {
    let row = json!({"dataframe_records": [{"amount": 1, "color": "re", "size": "10", "age": 2}]});
    let message = refusal(scored(&model(UnknownCategory::Refused), &row));
    for part in [
        "column \"color\"",
        "\"re\" is not one of the categories",
        "\"red\", \"a, b\"",
        "3 more",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let values = scored(&model(UnknownCategory::Missing), &row).unwrap();
    assert!(values[1].is_nan() && (values[0], values[2], values[3]) == (1.0, 0.0, 2.0));
    for unknown in [UnknownCategory::Refused, UnknownCategory::Missing] {
        let body = json!({"inputs": [[1, null, "", 2], [1, 3, "20", 2]]});
        let values = scored(&model(unknown), &body).unwrap();
        assert!(values[1].is_nan() && values[2].is_nan());
        assert_eq!(values[4..], [1.0, 3.0, 1.0, 2.0]);
    }
}

#[test]
fn texts_without_categories_are_rejected_with_the_remedy() {
    let model = model(UnknownCategory::Missing);
    let message = refusal(scored(&model, &json!({"inputs": [["x", "red", 1, 1]]})));
    for part in [
        "column \"amount\"",
        "the column has no categories",
        "\"categories\" of the model",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let plain = ModelInfo {
        columns: Columns {
            categories: Default::default(),
            ..model.columns.clone()
        },
        ..model.clone()
    };
    let body = json!({"instances": [{"amount": 1, "color": "red", "size": 1, "age": 1}]});
    let message = refusal(instances(&plain, &body));
    for part in [
        "instance 0",
        "column \"color\"",
        "the model has no categories",
        "as numbers",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let columns = |name, datatype| {
        let shape = [1];
        let declared = NAMES.map(|column| DeclaredColumn {
            name: column,
            datatype: if column == name { datatype } else { "FP32" },
            shape: &shape,
        });
        ColumnTensors::check(&model, &declared).map_err(|error| error.to_string())
    };
    let message = columns("age", "BYTES").unwrap_err();
    assert!(
        message.contains("column \"age\" has datatype \"BYTES\", but the model has no"),
        "{message}"
    );
    let message = columns("color", "TEXT").unwrap_err();
    assert!(message.contains("FP64 BYTES"), "{message}");
    assert_eq!(
        columns("color", "BYTES").unwrap().kinds()[1].binary_size(3),
        BinarySize::AtLeast(12)
    );
}

#[test]
fn a_field_of_csv_that_is_a_number_and_a_category_is_refused() {
    let row = |line: &str| {
        let model = model(UnknownCategory::Refused);
        let body = format!("amount,color,size,age\n{line}\n");
        written(&model, Table::from_csv(&model, body.as_bytes(), None))
    };
    let message = refusal(row("1,red,10,1"));
    for part in [
        "line 2",
        "field 3, \"10\", is a category and a number",
        "its code 0",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(row("1,red,1,1").unwrap(), [1.0, 0.0, 1.0, 1.0]);
    // The number 7 is the code of the category "7".
    assert_eq!(row("1,7,2,1").unwrap(), [1.0, 7.0, 2.0, 1.0]);
    assert_eq!(row("1,NA,2,1").unwrap()[1], 6.0);
    assert!(row("1,,2,1").unwrap()[1].is_nan());
    assert!(row("1,None,2,1").unwrap()[1].is_nan());
    assert!(refusal(row("1,blue,2,1")).contains("field 2, \"blue\", \"blue\" is not one of"));
    assert!(refusal(row("x,red,2,1")).contains("field 1, \"x\", is not a number"));
}

#[test]
fn invalid_text_tensors_are_rejected_with_the_reason() {
    let table = CategoryTable::new(["a".to_owned()], UnknownCategory::Refused);
    let mut memory = [0; 8];
    for (text, part) in [
        ("7", "not a list"),
        ("[\"a\"]", "has 1 strings where its shape needs 2"),
        ("[\"a\",\"a\",\"a\"]", "has 3 strings"),
        ("[\"a\",1]", "value 1: `1` is not a string"),
        (
            "[\"a\",\"\\x\"]",
            "value 1: `\"\\x\"` is not a valid string",
        ),
        ("[\"a\",\"a", "value 1: `\"a` is not a valid string"),
        ("[\"a\" \"a\"]", "the list of strings is malformed"),
        ("[[\"a\",\"a\"]]", "the list of strings is malformed"),
        (
            "[\"a\",\"a\"] 1",
            "unexpected data after the list of strings",
        ),
        (
            "[\"a\",\"b\"]",
            "value 1: \"b\" is not one of the categories \"a\"",
        ),
    ] {
        let message = write_json(&table, text, &mut memory).unwrap_err().message;
        assert!(message.contains(part), "{text}: {message}");
    }
    for (bytes, part) in [
        (&b"\x01\0\0\0a"[..], "has 1 strings where its shape needs 2"),
        (
            b"\x01\0\0\0a\xff\xff\xff\xffa",
            "value 1: its string is incomplete",
        ),
        (b"\x01\0\0\0a\x01\0", "value 1: its string is incomplete"),
        (
            b"\x01\0\0\0a\x02\0\0\0a\xff",
            "value 1: its string is not UTF-8 after 1 bytes",
        ),
    ] {
        let message = write_bytes(&table, bytes, &mut memory).unwrap_err().message;
        assert!(message.contains(part), "{bytes:?}: {message}");
    }
    let contents = InferTensorContents {
        bytes_contents: vec![b"a".to_vec(); 2],
        int_contents: vec![1],
        ..Default::default()
    };
    let message = write_contents(&table, &contents, &mut memory)
        .unwrap_err()
        .message;
    assert!(message.contains("bytes_contents only"), "{message}");
}
