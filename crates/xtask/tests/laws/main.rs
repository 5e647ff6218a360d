//! Repository checks, called laws: rules of ARCHITECTURE.md that are checked automatically instead
//! of by reviewers.
//!
//! Every violation contains its place, the law and the remedy. `tree` finds the files, `lexer`
//! separates code from comments and string literals; each other module contains the laws on one
//! subject.
// Helper functions are also test code: a law that cannot be read must fail.
#![allow(clippy::expect_used, clippy::panic)]

mod dependencies;
mod documents;
mod lexer;
mod links;
mod manifests;
mod shape;
mod signatures;
mod sources;
mod tree;
mod types;
mod words;
