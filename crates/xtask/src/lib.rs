//! Development tasks: generated files and container images. Not shipped.
#![forbid(unsafe_code)]

pub mod crds;
pub mod docs;
pub mod images;
pub mod manifests;
pub mod proto;
mod yaml;
