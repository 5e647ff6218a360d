//! Column names in any order, and the names that are rejected.

use albacore_engine::Columns;
use proptest::prelude::*;

use super::*;

fn model(names: &[&str], features: usize) -> ModelInfo {
    ModelInfo {
        name: "m".to_owned(),
        features,
        columns: Columns {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            types: Vec::new(),
            ..Columns::default()
        },
        ..ModelInfo::default()
    }
}

fn refused(names: &[&str], request: &[&str]) -> String {
    let found = ColumnOrder::find(&model(names, 3), request);
    found.unwrap_err().to_string()
}

#[test]
fn wrong_names_are_refused_by_name() {
    let model_names = ["age", "amount", "c"];
    for (request, part) in [
        (
            &["age", "sum", "c", "x"][..],
            "column \"sum\", \"x\" are unknown; the model has \"age\"",
        ),
        (&["age", "c", "age"], "column \"age\" is given twice"),
        (&["c"], "column \"age\", \"amount\" are missing: send null"),
        (&["age", "amount"], "column \"c\" is missing"),
        (&["0", "1", "2"], "are unknown"),
        (&[], "column \"age\", \"amount\", \"c\" are missing"),
    ] {
        let message = refused(&model_names, request);
        assert!(
            message.starts_with("model \"m\": ") && message.contains(part),
            "{message}"
        );
    }
    let message = refused(&[], &["age", "1", "2"]);
    assert!(
        message.contains("\"age\" is unknown: the model's file has no column names"),
        "{message}"
    );
    assert!(refused(&[], &["00", "1", "2"]).contains("\"00\" is unknown"));
}

#[test]
fn numbers_are_the_names_of_nameless_columns() {
    for names in [&[][..], &["Column_0", "Column_1", "Column_2"]] {
        let find = |request: &[&str]| ColumnOrder::find(&model(names, 3), request).unwrap();
        assert_eq!(find(&["0", "1", "2"]), None);
        let sources = [1, 2, 0].map(Some);
        assert_eq!(find(&["2", "0", "1"]).unwrap().sources(), sources);
    }
}

#[test]
fn a_misspelled_name_and_no_name_are_refused_where_columns_may_be_missing() {
    let model = ModelInfo {
        missing_is_nan: true,
        ..model(&["age", "amount", "c"], 3)
    };
    for (request, part) in [
        (&["age", "amuont"][..], "column \"amuont\" is unknown"),
        (&["age", "age"], "column \"age\" is given twice"),
        (&["x"], "column \"x\" is unknown"),
        (&[], "are missing"),
    ] {
        let message = ColumnOrder::find(&model, request).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

/// Writes a request row with these values and returns the rows in the model's column order.
fn rows_of(order: &ColumnOrder, values: &[f32], all: usize) -> Vec<f32> {
    let mut memory = vec![0; 4 * all];
    let written = order.write(ElementType::F32, &mut memory, |memory| {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        memory.copy_from_slice(&bytes);
        Ok::<(), ()>(())
    });
    written.unwrap();
    let values = memory.as_chunks().0.iter();
    values.map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

proptest! {
    #[test]
    fn any_order_is_found(order in Just((0..9_usize).collect::<Vec<_>>()).prop_shuffle()) {
        let names: Vec<String> = (0..9).map(|column| format!("n{column}")).collect();
        let model_names: Vec<&str> = names.iter().map(String::as_str).collect();
        let request: Vec<&str> = order.iter().map(|&column| model_names[column]).collect();
        let found = ColumnOrder::find(&model(&model_names, 9), &request).unwrap();
        let sources = found.map_or((0..9).map(Some).collect(), |it| it.sources().to_vec());
        for (column, source) in sources.into_iter().enumerate() {
            prop_assert_eq!(request[source.unwrap()], model_names[column]);
        }
        let Some(found) = ColumnOrder::find(&model(&model_names, 9), &request).unwrap() else {
            return Ok(());
        };
        let values: Vec<f32> = order.iter().chain(&order).map(|&column| column as f32).collect();
        let rows = rows_of(&found, &values, 18);
        prop_assert_eq!(rows, (0..9).map(|it| it as f32).collect::<Vec<_>>().repeat(2));
    }

    #[test]
    fn any_columns_may_be_missing_but_all(
        order in Just((0..9_usize).collect::<Vec<_>>()).prop_shuffle(),
        width in 1_usize..9,
        rows in 1_usize..5,
    ) {
        let names: Vec<String> = (0..9).map(|column| format!("n{column}")).collect();
        let model_names: Vec<&str> = names.iter().map(String::as_str).collect();
        let model = ModelInfo { missing_is_nan: true, ..model(&model_names, 9) };
        let kept = &order[..width];
        let request: Vec<&str> = kept.iter().map(|&column| model_names[column]).collect();
        let found = ColumnOrder::find(&model, &request).unwrap().unwrap();
        prop_assert_eq!(found.width(), width);
        let value = |row: usize, column: usize| (100 * row + column) as f32;
        let of_row = |row: usize| kept.iter().map(move |&column| value(row, column));
        let values: Vec<f32> = (0..rows).flat_map(of_row).collect();
        let got = rows_of(&found, &values, 9 * rows);
        for (at, got) in got.into_iter().enumerate() {
            let (row, column) = (at / 9, at % 9);
            let is_right = match kept.contains(&column) {
                true => got == value(row, column),
                false => got.is_nan(),
            };
            prop_assert!(is_right, "{row} {column} {got}");
        }
    }
}
