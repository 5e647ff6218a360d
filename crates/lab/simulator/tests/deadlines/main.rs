//! Tests the deferred scheduler against the traces of a reference, against a slow and simple model
//! of the algorithm, and against the invariants that follow from it.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod driver;
mod equal;
mod golden;
mod laws;
mod oracle;
