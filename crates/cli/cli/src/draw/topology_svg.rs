//! A machine as a picture: nested boxes, and a number on every CPU.

use albacore_topology::{CpuSet, Topology};

use super::boxes::Boxes;
use super::layout::Size;
use super::style::CSS;
use super::tree::{nest, summary};
use albacore_svg::{Svg, text_width};

const MARGIN: f64 = 20.0;
const HEAD: f64 = 54.0;
const CELL: Size = Size { w: 42.0, h: 30.0 };

/// The machine as SVG; CPUs outside `usable` are faint.
pub(crate) fn topology_svg(machine: &Topology, usable: &CpuSet) -> String {
    let parts = nest(machine);
    let boxes = Boxes::lay_out(&parts, CELL, 2.2);
    let mut svg = Svg::default();
    let sub = summary(machine);
    svg.text("title", (MARGIN, MARGIN + 16.0), "Topology");
    svg.text("sub", (MARGIN, MARGIN + 38.0), &sub);
    let w = 2.0 * MARGIN + boxes.size().w.max(text_width(&sub, 13.0));
    let corner = ((w - boxes.size().w) / 2.0, MARGIN + HEAD);
    boxes.draw(&mut svg, corner, &mut |svg, cpu, (x, y)| {
        let class = if usable.contains(cpu.id) {
            "bigid"
        } else {
            "bigid out"
        };
        let middle = (x + CELL.w / 2.0, y + CELL.h / 2.0 + 5.0);
        svg.text(class, middle, &cpu.id.to_string());
    });
    svg.finish(
        (w, 2.0 * MARGIN + HEAD + boxes.size().h),
        &format!("Topology: {sub}"),
        CSS,
    )
}
