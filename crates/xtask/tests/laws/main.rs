//! Repository checks, called laws: rules of ARCHITECTURE.md that no reviewer should have to check.
//!
//! Every violation names its place, the law and the remedy. `tree` finds the files, `lexer` tells
//! code from comments and string literals; the other modules hold the laws of one subject each.
// Functions beside the tests are tests too: a law that cannot be read must fail.
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
mod words;
