//! Experiment files that are parsed, shortened and rejected.

use super::*;

const FILE: &str = "\
name: short
workers: [1, 2]
threads: [2]
policies: [kernel, scatter]
models: [{name: small, file: small.ubj, features: 29}]
requests: [{rows: 10}, {rows: 5, output: contribs}]
load: {clientsPerWorker: 2}
trials: 3
window: 500ms
quick: {workers: [1], window: 100ms, models: [small]}
";

fn read(text: &str, is_quick: bool) -> Result<Spec, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("experiment.yaml");
    std::fs::write(&file, text).unwrap();
    Spec::read(&file, is_quick).map_err(|error| error.to_string())
}

#[test]
fn quick_overrides_the_fields_that_it_names() {
    let whole = read(FILE, false).unwrap();
    assert_eq!(whole.workers, [1, 2]);
    assert_eq!(whole.window, TimeSpan(Duration::from_millis(500)));
    assert!(whole.models[0].file.is_absolute());
    let quick = read(FILE, true).unwrap();
    assert_eq!((&quick.workers[..], quick.trials), (&[1][..], 3));
    assert_eq!(quick.window, TimeSpan(Duration::from_millis(100)));
    let names: Vec<String> = quick.requests.iter().map(RequestKind::name).collect();
    assert_eq!(names, ["10 output", "5 contribs"]);
}

#[test]
fn errors_name_the_field_and_a_remedy() {
    for (before, after, named) in [
        (
            "workers: [1, 2]",
            "workers: []",
            "workers: the list is empty",
        ),
        (
            "workers: [1, 2]",
            "workers: [0]",
            "workers: 0 is out of range: write 1 to 256",
        ),
        (
            "workers: [1, 2]",
            "workers: [2, 2]",
            "workers: 2 appears twice",
        ),
        ("[kernel, scatter]", "[kernel]", "write at least two"),
        ("[kernel, scatter]", "[kernel, bind-close]", "set template"),
        ("[kernel, scatter]", "[kernel, best]", "line 4"),
        (
            "trials: 3",
            "trials: 1",
            "trials: 1 is out of range: write 2 to",
        ),
        ("window: 500ms", "window: 5", "line 9"),
        (
            "window: 500ms",
            "window: 1ms",
            "window: 1ms is out of range: write 100ms to",
        ),
        ("{clientsPerWorker: 2}", "{}", "load: write exactly one of"),
        ("{clientsPerWorker: 2}", "{rate: -1}", "load.rate: -1"),
        ("{rows: 10}", "{rows: 0}", "requests[0].rows: 0"),
        ("{rows: 10}", "{rows: 10, path: /p}", "requests[0].path"),
        ("features: 29", "features: 0", "models[0].features: 0"),
        ("name: short", "name: A b", "name: \"A b\""),
        ("trials: 3", "trails: 3", "trails"),
        ("trials: 3", "trials: 3\nfolder: /tmp", "folder: it is"),
    ] {
        let text = FILE.replacen(before, after, 1);
        assert_ne!(text, FILE, "{before}");
        let said = read(&text, false).unwrap_err();
        assert!(said.contains(named), "{after}: {said}");
    }
    let without = FILE.split("quick:").next().unwrap();
    assert!(read(without, true).unwrap_err().contains("--quick"));
}

#[test]
fn a_spec_is_equal_after_a_round_trip() {
    let spec = read(FILE, false).unwrap();
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
}
