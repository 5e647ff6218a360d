//! The laws of the house as tests: what ARCHITECTURE.md promises and no reader should have to
//! check.
//!
//! Every offence names its place, the law and the way out. `tree` finds the files, `lexer` tells
//! code from comments and texts; the other modules hold the laws of one subject each.
// Functions beside the tests are tests too: a law that cannot be read must fail.
#![allow(clippy::expect_used, clippy::panic)]

mod dependencies;
mod documents;
mod lexer;
mod manifests;
mod shape;
mod sources;
mod tree;
mod words;
