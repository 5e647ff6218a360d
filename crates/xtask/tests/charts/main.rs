//! Tests of the chart and the manifests: rendered objects, rejected values, and their use on a real
//! API server.
//!
//! `values` tests every value, `pods` and `rights` check the guarantees in SECURITY.md, `cluster`
//! installs, upgrades and uninstalls, `admission` and `rights` send requests as the accounts of the
//! chart, `health` runs the check for Argo CD, `olm` reads the bundle for OLM, and `metrics` reads
//! every metric in dashboard and rules from the running programs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod admission;
mod cluster;
mod health;
mod metrics;
mod olm;
mod plane;
mod pods;
mod rendered;
mod rights;
mod values;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

fn chart() -> PathBuf {
    root().join(albacore_xtask::manifests::helm::CHART)
}
