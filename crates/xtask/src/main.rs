//! `xtask`: the program that `make` runs to generate files and for tasks that are not a single
//! cargo command.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use albacore_xtask::{crds, docs, images, manifests, proto, release};

const USAGE: &str = "usage: xtask charts | crds | docs | images | manifests | olm [REGISTRY] | proto | release | version VERSION";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("."));
    let task = std::env::args().nth(1).unwrap_or_default();
    let done = match task.as_str() {
        "charts" => manifests::package(root),
        "crds" => crds::write(root),
        "docs" => std::env::current_exe()
            .map_err(Into::into)
            .and_then(|own| docs::write(root, own.parent().unwrap_or(root))),
        "images" => images::Architecture::of_this_machine()
            .map_err(Into::into)
            .and_then(|own| images::run(root, &root.join("target/images"), &[own]))
            .map(drop),
        "manifests" => manifests::write(root),
        "olm" => {
            let registry = std::env::args().nth(2);
            let registry = registry.as_deref().unwrap_or(images::REGISTRY);
            release::bundle(root, &root.join("target/olm"), registry)
        }
        "release" => release::run(root, &root.join("target/dist")),
        "version" => match std::env::args().nth(2) {
            Some(version) => release::version::set(root, &version),
            None => Err(anyhow::anyhow!(
                "the version is missing: give one such as 0.2.0"
            )),
        },
        "proto" => proto::write(root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {task}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
