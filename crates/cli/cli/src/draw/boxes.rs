//! A machine as nested boxes: sizes are computed bottom-up, positions top-down.

use albacore_topology::{CAPACITY_MAX, Cpu};

use super::layout::{RowLayout, Size, flow_runs};
use super::tree::{Core, Domain, DomainOrCore};
use albacore_svg::{Svg, bold_width};

const CORE_PAD: f64 = 6.0;
const CORE_LABEL: f64 = 13.0;
const CPU_GAP: f64 = 4.0;
const DOMAIN_PAD: f64 = 12.0;
const DOMAIN_LABEL: f64 = 20.0;
const GAP: f64 = 9.0;
/// Target aspect ratio (width / height) of inner boxes, slightly wider than tall.
const INNER_ASPECT: f64 = 1.9;

/// Draws the content of one CPU, given the upper left corner of its cell.
pub(super) type DrawCpu<'d> = dyn FnMut(&mut Svg, &Cpu, (f64, f64)) + 'd;

/// Boxes with their sizes.
#[derive(Debug)]
pub(super) struct Boxes<'a> {
    parts: Vec<SizedDomainOrCore<'a>>,
    flow: RowLayout,
    cell: Size,
}

#[derive(Debug)]
struct SizedDomainOrCore<'a> {
    content: Content<'a>,
    size: Size,
}

#[derive(Debug)]
enum Content<'a> {
    Domain(&'a Domain<'a>, Boxes<'a>),
    Core(&'a Core<'a>),
}

impl<'a> Boxes<'a> {
    /// Lays out `parts` with CPU cells of size `cell`, with an aspect ratio (width / height) close
    /// to `aspect`.
    pub(super) fn lay_out(parts: &'a [DomainOrCore<'a>], cell: Size, aspect: f64) -> Self {
        let parts: Vec<SizedDomainOrCore<'a>> = parts
            .iter()
            .map(|part| SizedDomainOrCore::of(part, cell, aspect))
            .collect();
        // Cores and clusters of cores are not mixed in one row.
        let runs: Vec<Vec<Size>> = parts
            .chunk_by(|a, b| a.is_core() == b.is_core())
            .map(|run| run.iter().map(|part| part.size).collect())
            .collect();
        Self {
            flow: flow_runs(&runs, GAP, aspect),
            parts,
            cell,
        }
    }

    /// Extent of all boxes.
    pub(super) fn size(&self) -> Size {
        self.flow.size
    }

    /// Draws the boxes starting at `corner`, and calls `draw_cpu` for every CPU.
    pub(super) fn draw(&self, svg: &mut Svg, corner: (f64, f64), draw_cpu: &mut DrawCpu<'_>) {
        self.draw_at_depth(svg, corner, 0, draw_cpu);
    }

    fn draw_at_depth(
        &self,
        svg: &mut Svg,
        (x0, y0): (f64, f64),
        depth: usize,
        draw_cpu: &mut DrawCpu<'_>,
    ) {
        for (part, (x, y)) in self.parts.iter().zip(&self.flow.corners) {
            let (x, y) = (x0 + x, y0 + y);
            match &part.content {
                Content::Domain(domain, inside) => {
                    let class = ["d0", "d1", "d2", "d3"][depth.min(3)];
                    svg.rect(
                        class,
                        (x, y),
                        (part.size.w, part.size.h),
                        10.0 - depth as f64,
                    );
                    svg.text(
                        "label",
                        (x + DOMAIN_PAD, y + DOMAIN_PAD + 7.0),
                        &domain.label,
                    );
                    let inner = (x + DOMAIN_PAD, y + DOMAIN_PAD + DOMAIN_LABEL - 4.0);
                    inside.draw_at_depth(svg, inner, depth + 1, draw_cpu);
                }
                Content::Core(core) => self.draw_core(svg, core, (x, y), part.size, draw_cpu),
            }
        }
    }

    fn draw_core(
        &self,
        svg: &mut Svg,
        core: &Core<'_>,
        (x, y): (f64, f64),
        size: Size,
        draw_cpu: &mut DrawCpu<'_>,
    ) {
        let (class, cpu_class, mark) = match core.capacity {
            CAPACITY_MAX => ("core", "cpu", ""),
            _ => ("core slow", "cpu slowcpu", " slow"),
        };
        svg.rect(class, (x, y), (size.w, size.h), 7.0);
        svg.text(
            "small",
            (x + CORE_PAD + 1.0, y + 12.5),
            &format!("core {}{mark}", core.number),
        );
        for (i, cpu) in core.cpus.iter().enumerate() {
            let left = x + CORE_PAD + i as f64 * (self.cell.w + CPU_GAP);
            let corner = (left, y + CORE_PAD + CORE_LABEL - 1.0);
            svg.rect(cpu_class, corner, (self.cell.w, self.cell.h), 5.0);
            draw_cpu(svg, cpu, corner);
        }
    }
}

impl<'a> SizedDomainOrCore<'a> {
    fn is_core(&self) -> bool {
        matches!(self.content, Content::Core(_))
    }

    fn of(part: &'a DomainOrCore<'a>, cell: Size, aspect: f64) -> Self {
        match part {
            DomainOrCore::Core(core) => {
                let n = core.cpus.len() as f64;
                let w = 2.0 * CORE_PAD + n * cell.w + (n - 1.0) * CPU_GAP;
                let h = 2.0 * CORE_PAD + CORE_LABEL - 1.0 + cell.h;
                Self {
                    content: Content::Core(core),
                    size: Size { w, h },
                }
            }
            DomainOrCore::Domain(domain) => {
                // A lone box uses the aspect ratio of the whole.
                let inside = Boxes::lay_out(&domain.parts, cell, aspect.min(INNER_ASPECT));
                let label = bold_width(&domain.label, 12.0);
                let w = 2.0 * DOMAIN_PAD + inside.size().w.max(label);
                let h = 2.0 * DOMAIN_PAD + DOMAIN_LABEL - 4.0 + inside.size().h;
                Self {
                    content: Content::Domain(domain, inside),
                    size: Size { w, h },
                }
            }
        }
    }
}
