//! Checks of the zoo itself.

mod zoo;

#[test]
fn every_model_of_the_zoo_has_a_file_rows_and_expected_outputs() {
    let samples = zoo::samples();
    assert!(samples.len() >= 52);
    for sample in samples {
        let rows = sample.array("X").map(|array| array.shape[0]);
        assert!(rows.is_some_and(|rows| rows > 0), "{}", sample.name);
        assert!(sample.array("margin").is_some(), "{}", sample.name);
    }
}
