//! JSON tensors of numbers: values, nesting, counts, and invalid text.

use proptest::prelude::*;

use super::*;

/// Parses rows of two features.
fn pairs(datatype: Datatype, text: &str, rows: usize) -> Result<Vec<f64>, String> {
    let mut memory = vec![0; rows * 2 * datatype.element().bytes()];
    write_json(RowWriter::new(datatype, &mut memory), 2, text)
        .map_err(|refused| refused.to_string())?;
    Ok(match datatype.element().bytes() {
        4 => memory
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b).into())
            .collect(),
        _ => memory
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from_le_bytes(b))
            .collect(),
    })
}

#[test]
fn flat_and_nested_data_are_the_same_rows() {
    let flat = pairs(Datatype::Fp64, "[1, -2.5,3e2 ,\n4]", 2).unwrap();
    assert_eq!(flat, [1.0, -2.5, 300.0, 4.0]);
    assert_eq!(
        pairs(Datatype::Fp64, "[[1,-2.5] , [3e2,4]]", 2).unwrap(),
        flat
    );
}

#[test]
fn null_is_missing_and_booleans_are_numbers() {
    assert!(pairs(Datatype::Fp32, "[null, 1]", 1).unwrap()[0].is_nan());
    assert!(pairs(Datatype::Int64, "[null, 1]", 1).unwrap()[0].is_nan());
    assert_eq!(
        pairs(Datatype::Bool, "[true, false, 1, 0]", 2).unwrap(),
        [1.0, 0.0, 1.0, 0.0]
    );
}

#[test]
fn errors_contain_the_position_of_the_value() {
    for (datatype, text, rows, part) in [
        (Datatype::Fp32, "[1,2,3]", 2, "has 3 values of data"),
        (Datatype::Fp32, "[1,2,3,4,5]", 2, "has 5 values of data"),
        (
            Datatype::Fp32,
            "[[1,2],[3]]",
            2,
            "row 1 of input \"input\" has 1 values, not 2",
        ),
        (
            Datatype::Fp32,
            "[[1,2]]",
            2,
            "has 1 rows of data where its shape says 2",
        ),
        (
            Datatype::Fp32,
            "[[1,2],[3,4],[5,6]]",
            2,
            "more rows of data than the 2",
        ),
        (Datatype::Fp32, "[[[1,2]]]", 1, "value 0"),
        (
            Datatype::Fp32,
            "[1,\"2\"]",
            1,
            "value 1 of input \"input\" (FP32): `\"2\"`",
        ),
        (Datatype::Fp32, "[1e39,2]", 1, "`1e39` is not a FP32 number"),
        (Datatype::Fp32, "[true,2]", 1, "`true` is not"),
        (Datatype::Int8, "[128,2]", 1, "128 is outside of -128..=127"),
        (Datatype::Int32, "[1.5,2]", 1, "`1.5` is not a INT32 number"),
        (Datatype::Uint64, "[9007199254740993,2]", 1, "53 bits"),
        (Datatype::Fp16, "[1,2]", 1, "no JSON form"),
        (Datatype::Fp32, "{}", 1, "not an array"),
        (Datatype::Fp32, "[]", 1, "has 0 values"),
    ] {
        let message = pairs(datatype, text, rows).unwrap_err();
        assert!(message.contains(part), "{text}: {message}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(
        text in "[\\[\\],\\. 0-9eEtrufalsn\"{}-]{0,40}|\\PC{0,20}",
        rows in 0_usize..4,
        kind in 0_usize..13,
    ) {
        let _ = pairs(Datatype::NAMES[kind].0, &text, rows);
    }

    #[test]
    fn every_f32_round_trips(values in prop::collection::vec(any::<f32>(), 2)) {
        prop_assume!(values.iter().all(|value| value.is_finite()));
        let text = serde_json::to_string(&values).unwrap();
        let mut memory = [0; 8];
        write_json(RowWriter::new(Datatype::Fp32, &mut memory), 2, &text).unwrap();
        let cells = memory.as_chunks().0.iter();
        let bits: Vec<u32> = cells.map(|&b| u32::from_le_bytes(b)).collect();
        prop_assert_eq!(bits, values.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
    }
}
