//! Machines and plans as text and as pictures.

mod boxes;
mod layout;
mod plan_svg;
mod plan_text;
mod style;
mod svg;
mod topology_svg;
mod topology_text;
mod tree;

pub(crate) use plan_svg::plan_svg;
pub(crate) use plan_text::plan_text;
pub(crate) use topology_svg::topology_svg;
pub(crate) use topology_text::topology_text;
