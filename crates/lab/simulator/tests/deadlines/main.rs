//! The deferred scheduler against the traces of a reference, against a slow and obvious model of
//! the algorithm, and against the laws that follow from it.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod driver;
mod equal;
mod golden;
mod laws;
mod oracle;
