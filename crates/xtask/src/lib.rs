//! Development tasks: generated files, container images and releases. Not shipped.
#![forbid(unsafe_code)]

pub mod crds;
pub mod docs;
pub mod images;
pub mod manifests;
pub mod proto;
pub mod release;
mod yaml;
