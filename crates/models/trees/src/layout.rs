//! The compiled model: the types of its bytes.
//!
//! `compile` writes them; `open` and every engine read them. No algorithm is here, so that these
//! sides import the layout and not each other.

pub(crate) mod binned;
pub(crate) mod bundles;
pub(crate) mod ensemble;
pub(crate) mod image;
