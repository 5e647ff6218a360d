//! Data layout of the compiled model.
//!
//! `compile` writes it; `open` and the engines read it. It contains no algorithms, so that these
//! modules depend on the layout and not on each other.

pub(crate) mod binned;
pub(crate) mod bundles;
pub(crate) mod ensemble;
pub(crate) mod image;
