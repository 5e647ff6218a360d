//! Infer bodies: rejected bodies and their errors; arbitrary bodies never panic.

use proptest::prelude::*;

use super::super::super::sample_model::sample_model;
use super::*;
use albacore_engine::Kind;

fn model() -> ModelInfo {
    sample_model(2, Kind::Leaf)
}

/// Returns the rows of a body, or the error message.
fn rows(body: &[u8], json_bytes: Option<usize>) -> Result<Vec<f32>, String> {
    let model = model();
    let call = HttpInferRequest::parse(&model, body, json_bytes, &SharedMemoryRegions::new(0))
        .map_err(|error| error.to_string())?;
    let mut memory = vec![0; call.rows * 2 * call.datatype.element().bytes()];
    call.write_rows(&model, &mut memory)
        .map_err(|error| error.to_string())?;
    Ok(memory
        .as_chunks()
        .0
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect())
}

#[test]
fn unknown_keys_and_odd_parameters_are_tolerated() {
    let body = br#"{"model_name": "other", "id": "7", "parameters": {"priority": 3, "x": [1, {}]},
        "inputs": [{"name": "input", "shape": [1, 2], "datatype": "FP32", "parameters": null,
        "extra": {"deep": [[[]]]}, "data": [1.5, null]}], "outputs": null}"#;
    let model = model();
    let call = HttpInferRequest::parse(&model, body, None, &SharedMemoryRegions::new(0)).unwrap();
    assert_eq!(call.id.as_deref(), Some("7"));
    assert_eq!(
        call.outputs,
        [RequestedOutput {
            kind: Kind::Value,
            binary: false,
            form: OutputForm::Values,
        }]
    );
    let rows = rows(body, None).unwrap();
    assert!(rows[0] == 1.5 && rows[1].is_nan());
}

#[test]
fn a_per_output_choice_of_binary_overrides_that_of_the_request() {
    let body = br#"{"parameters": {"binary_data_output": true},
        "inputs": [{"name": "input", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}],
        "outputs": [{"name": "leaf"}, {"name": "output", "parameters": {"binary_data": false}}]}"#;
    let call = HttpInferRequest::parse(&model(), body, None, &SharedMemoryRegions::new(0))
        .unwrap()
        .outputs;
    assert_eq!(
        call[0],
        RequestedOutput {
            kind: Kind::Leaf,
            binary: true,
            form: OutputForm::Values,
        }
    );
    assert_eq!(
        call[1],
        RequestedOutput {
            kind: Kind::Value,
            binary: false,
            form: OutputForm::Values,
        }
    );
}

#[test]
fn binary_tensors_follow_the_json() {
    let head = br#"{"inputs": [{"name": "input", "shape": [1, 2], "datatype": "FP32",
        "parameters": {"binary_data_size": 8}}]}"#;
    let mut body = head.to_vec();
    body.extend([1.0_f32.to_le_bytes(), f32::NAN.to_le_bytes()].concat());
    assert_eq!(rows(&body, Some(head.len())).unwrap()[0], 1.0);
    for (cut, json_bytes, part) in [
        (body.len() - 1, head.len(), "7 bytes follow the JSON"),
        (head.len(), head.len(), "0 bytes follow the JSON"),
        (body.len(), body.len() + 1, "but the body has"),
        (body.len(), head.len() - 1, "not an infer request"),
    ] {
        let message = rows(&body[..cut], Some(json_bytes)).unwrap_err();
        assert!(message.contains(part), "{message}");
    }
    body.push(0);
    assert!(
        rows(&body, Some(head.len()))
            .unwrap_err()
            .contains("9 bytes follow")
    );
}

#[test]
fn a_body_without_json_is_rows_of_the_models_own_type() {
    let body = [1.0_f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
    assert_eq!(rows(&body, Some(0)).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert!(
        rows(&body[..15], Some(0))
            .unwrap_err()
            .contains("not a whole number of rows")
    );
    assert!(rows(&[], Some(0)).is_err());
}

#[test]
fn invalid_requests_are_rejected_with_the_reason() {
    let input = |json: &str| format!("{{\"inputs\": [{json}]}}");
    let of_shape = |shape: &str| {
        input(&format!(
            r#"{{"name": "input", "shape": {shape}, "datatype": "FP32", "data": [1, 2]}}"#
        ))
    };
    for (body, part) in [
        (String::new(), "EOF"),
        ("{".to_owned(), "EOF"),
        ("[]".to_owned(), "not an infer request"),
        ("{}".to_owned(), "missing field `inputs`"),
        (r#"{"inputs": []}"#.to_owned(), "0 inputs"),
        (
            r#"{"inputs": [], "id": 7}"#.to_owned(),
            "request: id: invalid type: integer `7`, expected a string",
        ),
        (of_shape("[2]"), "takes [rows, 2]"),
        (of_shape("[0, 2]"), "at least one row"),
        (of_shape("[-1, 2]"), "takes [rows, 2]"),
        (
            of_shape("[1.5, 2]"),
            "request: inputs[0].shape[0]: invalid type: floating point",
        ),
        (
            of_shape("[1,1,1,1,1,1,1,1,1]"),
            "request: inputs[0].shape: at most 8 entries are allowed, got 9",
        ),
        (of_shape("[4611686018427387904, 2]"), "shape"),
        (of_shape("[1000000000, 2]"), "less data"),
        (
            input(r#"{"name": "input", "shape": [1, 2], "datatype": "FP32"}"#),
            "no data",
        ),
        (
            input(r#"{"name": "input", "shape": [1, 2], "datatype": "FP32", "data": [1, NaN]}"#),
            "send null for a missing value",
        ),
        (
            input(
                r#"{"name": "input", "shape": [1, 2], "datatype": "FP32", "data": [1, 2],
                "parameters": {"binary_data_size": 8}}"#,
            ),
            "send one of them",
        ),
        (
            input(
                r#"{"name": "input", "shape": [1, 2], "datatype": "FP32",
                "parameters": {"shared_memory_region": "r"}}"#,
            ),
            "\"input\": shared_memory_region needs shared_memory_byte_size",
        ),
        (
            input(
                r#"{"name": "input", "shape": [1, 2], "datatype": "FP32",
                "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8}}"#,
            ),
            "system shared memory is off",
        ),
        (
            input(r#"{"name": "input", "name": "input", "shape": [], "datatype": ""}"#),
            "duplicate field",
        ),
    ] {
        let message = rows(body.as_bytes(), None).unwrap_err();
        assert!(message.contains(part), "{body}: {message}");
    }
}

/// The first array after `"data":` is not that of the tensor, or `"data":` is inside of a string.
#[test]
fn only_the_data_array_of_the_tensor_is_cut_out() {
    let data = r#"{"name":"input","shape":[1,2],"datatype":"FP32","data":[3,4]}"#;
    for before in [
        r#""parameters":{"data":[1,2]}"#,
        r#""x":"\\","data":[1,2]"#,
        r#""id":"\"data\":[1,2]""#,
        r#""outputs":[{"name":"output","data":[0,0]}]"#,
    ] {
        let body = format!("{{{before},\"inputs\":[{data}]}}");
        assert_eq!(rows(body.as_bytes(), None).unwrap(), [3.0, 4.0], "{body}");
    }
    let twice = format!("{{\"inputs\":[{data},{data}]}}");
    let message = rows(twice.as_bytes(), None).unwrap_err();
    assert!(message.contains("2 inputs"), "{message}");
}

/// Removes digits: positions in the text depend on the spelling of the key.
fn without_digits(message: &str) -> String {
    message.chars().filter(|c| !c.is_ascii_digit()).collect()
}

proptest! {
    /// An escape in the key prevents the array from being cut out.
    #[test]
    fn a_cut_body_is_read_as_the_whole(
        edits in prop::collection::vec((0_usize..60, "[0-9.eE+,\\[\\]\"\\\\ {}:NInulltrefas-]"), 0..5),
        is_replaced in any::<bool>(),
    ) {
        let mut body = r#""data": [[1.5, -20], [3e1, null]]}], "id": "x"}"#.to_owned();
        for (at, piece) in edits {
            let at = "\"data\"".len() + at % (body.len() - "\"data\"".len());
            let end = if is_replaced { at + 1 } else { at };
            body.replace_range(at..end, &piece);
        }
        let head = r#"{"inputs": [{"name": "input", "shape": [2, 2], "datatype": "FP32", "#;
        let cut = rows(format!("{head}{body}").as_bytes(), None);
        let body = body.replacen("\"data\"", "\"d\\u0061ta\"", 1);
        let whole = rows(format!("{head}{body}").as_bytes(), None);
        match (cut, whole) {
            (Ok(cut), Ok(whole)) => prop_assert_eq!(
                cut.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
                whole.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
                "{}", body
            ),
            (Err(cut), Err(whole)) => prop_assert_eq!(without_digits(&cut), without_digits(&whole), "{}", body),
            (cut, whole) => prop_assert!(false, "{body}: {cut:?} where the whole is {whole:?}"),
        }
    }

    #[test]
    fn arbitrary_bodies_never_panic(
        body in prop::collection::vec(any::<u8>(), 0..200),
        json_bytes in prop::option::of(0_usize..220),
    ) {
        let _ = rows(&body, json_bytes);
    }

    #[test]
    fn corrupted_requests_never_panic(
        at in 0_usize..180, byte in any::<u8>(), cut in 0_usize..200, json_bytes in 0_usize..200,
    ) {
        let mut body = br#"{"id":"a","inputs":[{"name":"input","shape":[2,2],"datatype":"FP32",
            "data":[[1,2],[3,null]]}],"outputs":[{"name":"leaf",
            "parameters":{"binary_data":true}}]}"#.to_vec();
        let length = body.len();
        body[at % length] = byte;
        body.truncate(cut);
        let _ = rows(&body, None);
        let _ = rows(&body, Some(json_bytes));
    }
}
