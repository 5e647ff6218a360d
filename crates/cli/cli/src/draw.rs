//! Renders machines and plans as text and as pictures.

mod boxes;
mod columns;
mod cores_text;
mod disc;
mod explanation;
mod joint_svg;
mod joint_text;
mod layout;
mod measured_text;
mod picture;
mod plan_svg;
mod plan_text;
mod rules_in_words;
mod status_svg;
mod style;
mod thread_explanation;
mod threads;
mod topology_svg;
mod topology_text;
mod tree;

pub(crate) use joint_svg::joint_svg;
pub(crate) use joint_text::joint_text;
pub(crate) use measured_text::measured_text;
pub(crate) use plan_svg::plan_svg;
pub(crate) use plan_text::{plan_text, relaxed_rule};
pub(crate) use status_svg::{PodStrip, status_svg};
pub(crate) use topology_svg::topology_svg;
pub(crate) use topology_text::topology_text;
