//! Development tasks: generated files and the laws of the house. Not part of what is shipped.
#![forbid(unsafe_code)]

pub mod bench_placement;
pub mod crds;
pub mod demo;
pub mod images;
pub mod manifests;
pub mod proto;
pub mod service;
mod yaml;
