//! Documents with commands and fields: the reference matches programs and code, and the commands of
//! the tutorials work.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod tutorials;

use std::path::{Path, PathBuf};

use albacore_testbed::product_of;
use albacore_xtask::docs;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

/// The directory of the built programs.
fn programs() -> PathBuf {
    let mut folder = PathBuf::new();
    for (package, program) in docs::PROGRAMS {
        let path = product_of(package, program).unwrap();
        path.parent().unwrap().clone_into(&mut folder);
    }
    folder
}

#[test]
fn generated_parts_of_the_documents_are_regenerated() {
    docs::check(root(), &programs()).unwrap();
}
