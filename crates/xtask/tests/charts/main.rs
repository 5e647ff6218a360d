//! The chart and the manifests: what they render, what they refuse, and what a real API server
//! makes of them.
//!
//! `values` walks every value, `pods` and `rights` hold what SECURITY.md promises, `cluster`
//! installs, upgrades and removes, `admission` and `rights` ask as the accounts of the chart,
//! `health` runs the check for Argo CD, `olm` reads the bundle for OLM, `metrics` asks the running
//! programs for every metric that dashboard and rules name.
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
