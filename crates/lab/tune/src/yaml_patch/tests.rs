//! Values are changed, added and removed; comments and layout are preserved.

use super::*;
use albacore_api::{BatchingPolicy, PlacementMode};

const FILE: &str = "\
# A comment at the top.
apiVersion: albacore.dev/v1beta1
kind: InferenceDeployment
metadata:
  name: fraud
spec:
  workers: 2  # as many as cpus
  threads: 2
  mode: Scatter
  models:
  # the model
  - name: fraud
    uri: file://./fraud.ubj
    slo: {latency: 25ms, percentile: 99}
  batching: {policy: Auto, maxRows: 1024} # flow
";

fn both(change: impl FnOnce(&mut Configuration)) -> (String, String) {
    let current = Configuration::of(&read_deployment(FILE, "f").unwrap().spec);
    let mut chosen = current.clone();
    change(&mut chosen);
    let text = patched(Path::new("f.yaml"), FILE, &current, &chosen, None).unwrap();
    let back = Configuration::of(&read_deployment(&text, "f").unwrap().spec);
    assert_eq!(back, chosen);
    (FILE.to_owned(), text)
}

#[test]
fn equal_values_change_nothing() {
    let (before, after) = both(|_| {});
    assert_eq!(before, after);
}

#[test]
fn values_change_and_comments_stay() {
    let (before, after) = both(|chosen| {
        chosen.workers = 4;
        chosen.mode = PlacementMode::Compact;
        chosen.max_rows = 256;
    });
    let due = before
        .replace("workers: 2 ", "workers: 4 ")
        .replace("Scatter", "Compact")
        .replace("1024", "256");
    assert_eq!(after, due);
}

/// The file with these lines instead of its last, after a change that removes fields.
fn removed(lines: &str, change: impl FnOnce(&mut Configuration)) -> String {
    let last = FILE.lines().last().unwrap();
    let file = FILE.replace(&format!("{last}\n"), lines);
    let current = Configuration::of(&read_deployment(&file, "f").unwrap().spec);
    let mut chosen = current.clone();
    change(&mut chosen);
    let text = patched(Path::new("f.yaml"), &file, &current, &chosen, None).unwrap();
    let back = Configuration::of(&read_deployment(&text, "f").unwrap().spec);
    assert_eq!(back, chosen, "{text}");
    assert!(text.contains("# as many as cpus"), "{text}");
    text
}

#[test]
fn fields_that_are_the_only_ones_of_their_map_are_removed() {
    let no_front = |chosen: &mut Configuration| chosen.front_threads = None;
    removed("  front: {threads: 2}\n", no_front);
    removed("  front:\n    threads: 2\n", no_front);
    let pinned = |chosen: &mut Configuration| chosen.main_thread = MainThreadPolicy::Pinned;
    removed("  placement: {mainThread: WorkerSet}\n", pinned);
    removed("  placement:\n    mainThread: WorkerSet\n", pinned);
    let no_window = |chosen: &mut Configuration| chosen.window = None;
    removed("  batching: {window: 5ms}\n", no_window);
    removed("  batching:\n    window: 5ms\n", no_window);
    let eager = |chosen: &mut Configuration| {
        chosen.policy = BatchingPolicy::Eager;
        chosen.max_delay = None;
    };
    removed("  batching: {policy: Timeout, maxDelay: 2ms}\n", eager);
    removed(
        "  batching:\n    policy: Timeout\n    maxDelay: 2ms\n",
        eager,
    );
}

#[test]
fn fields_and_maps_that_are_missing_are_added() {
    let (_, after) = both(|chosen| {
        chosen.front_threads = Some(2);
        chosen.main_thread = MainThreadPolicy::WorkerSet;
        chosen.policy = BatchingPolicy::Timeout;
        chosen.max_delay = albacore_api::Timespan::from_micros(500);
    });
    for line in [
        "# A comment at the top.",
        "# as many as cpus",
        "# the model",
        "# flow",
    ] {
        assert!(after.contains(line), "{after}");
    }
}

#[test]
fn replicas_change_and_everything_else_is_preserved() {
    let file = FILE.replace("  workers", "  replicas: 2 # pods\n  workers");
    let current = Configuration::of(&read_deployment(&file, "f").unwrap().spec);
    let path = Path::new("f.yaml");
    let text = patched(path, &file, &current, &current, Some(3)).unwrap();
    assert_eq!(text, file.replace("replicas: 2", "replicas: 3"));
    assert_eq!(
        patched(path, &file, &current, &current, None).unwrap(),
        file
    );
}
