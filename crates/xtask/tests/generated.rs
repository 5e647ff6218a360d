//! Committed generated files equal the current output of their generators.
// Helper functions are also test code.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use albacore_xtask::{crds, proto};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

#[test]
fn crds_are_regenerated() {
    crds::check(root()).unwrap();
    let written: Vec<_> = crds::generate().into_iter().map(|(path, _)| path).collect();
    for entry in std::fs::read_dir(root().join("crds")).unwrap() {
        let path = Path::new("crds").join(entry.unwrap().file_name());
        assert!(
            written.contains(&path),
            "{}: nothing writes it; remove it",
            path.display()
        );
    }
}

#[test]
fn protobuf_code_is_regenerated() {
    proto::check(root()).unwrap();
}
