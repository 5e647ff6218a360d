//! Valid requests, and the error messages of invalid ones.

use super::super::sample_model::sample_model;
use super::*;
use albacore_engine::{ClassNames, ClassRule};

fn model() -> ModelInfo {
    sample_model(3, Kind::Contribs)
}

fn check(datatype: &str, shape: &[i64]) -> Result<(Datatype, usize), RequestError> {
    check_input(&model(), &DeclaredTensor { datatype, shape }, None)
}

#[test]
fn only_two_dimensional_shapes_with_rows_are_accepted() {
    assert_eq!(check("FP32", &[2, 3]), Ok((Datatype::Fp32, 2)));
    for shape in [
        &[3][..],
        &[],
        &[0, 3],
        &[-1, 3],
        &[2, 4],
        &[2, 3, 1],
        &[i64::MAX, 3],
        &[i64::MIN, 3],
    ] {
        let message = check("FP32", shape).unwrap_err().to_string();
        assert!(message.contains("takes [rows, 3]"), "{message}");
    }
}

#[test]
fn types_are_case_sensitive() {
    for datatype in ["fp32", "BYTES", "", "FP8"] {
        assert!(
            check(datatype, &[1, 3])
                .unwrap_err()
                .message
                .contains("supported are")
        );
    }
}

#[test]
fn a_reply_has_a_largest_size() {
    let model = model();
    let output = |binary| RequestedOutput {
        kind: Kind::Contribs,
        binary,
        form: OutputForm::Values,
    };
    let rows = REPLY_BYTES_MAX / 16;
    assert_eq!(check_reply_size(&model, rows, &[output(true)]), Ok(()));
    let text = check_reply_size(&model, rows, &[output(false)]);
    assert_eq!(text.unwrap_err().kind, ErrorKind::TooLarge);
    assert!(check_reply_size(&model, usize::MAX, &[output(true)]).is_err());
}

#[test]
fn outputs_keep_their_order_and_value_is_the_default() {
    let model = model();
    let mut selection = OutputSelection::new(&model);
    selection.add("contribs", true).unwrap();
    selection.add("output", false).unwrap();
    assert!(selection.add("output", false).is_err());
    assert!(selection.add("leaf", false).is_err());
    let (selected, kinds) = selection.or_value(false);
    assert_eq!(
        selected[0],
        RequestedOutput {
            kind: Kind::Contribs,
            binary: true,
            form: OutputForm::Values,
        }
    );
    assert_eq!(selected.len(), 2);
    assert!(kinds.contains(Kind::Value) && !kinds.contains(Kind::Leaf));
    let (selected, _) = OutputSelection::new(&model).or_value(true);
    assert_eq!(
        selected,
        [RequestedOutput {
            kind: Kind::Value,
            binary: true,
            form: OutputForm::Values,
        }]
    );
}

#[test]
fn labels_can_be_requested_once_and_only_as_text() {
    let named = ModelInfo {
        class_names: Some(ClassNames {
            rule: ClassRule::AboveHalf,
            names: ["legit", "fraud"].map(str::to_owned).to_vec(),
        }),
        ..model()
    };
    let mut selection = OutputSelection::new(&named);
    selection.add("output", false).unwrap();
    selection.add(LABEL, true).unwrap();
    let message = selection.add(LABEL, false).unwrap_err().to_string();
    assert!(
        message.contains("\"label\" is requested twice"),
        "{message}"
    );
    let error = selection
        .add_as(LABEL, false, OutputForm::Classes(2))
        .unwrap_err();
    assert!(
        error.message.contains("it has no classification"),
        "{error}"
    );
    let (selected, _) = selection.or_default(false);
    let forms: Vec<_> = selected.iter().map(|output| &output.form).collect();
    assert_eq!(forms, [&OutputForm::Values, &OutputForm::Labels]);
    let (selected, _) = OutputSelection::new(&named).or_default(true);
    assert_eq!(selected.len(), 2);
    let plain = model();
    let error = OutputSelection::new(&plain).add(LABEL, true).unwrap_err();
    assert!(
        error.message.contains("output \"label\" is unknown"),
        "{error}"
    );
}
