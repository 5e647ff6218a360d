//! A plan as a picture: the machine as boxes and every thread as a disc. Main threads are large and
//! opaque, peers small and translucent; a ring marks threads that move.

use std::collections::BTreeMap;

use albacore_topology::{Cpu, CpuId, CpuSet, Topology};

use super::boxes::Boxes;
use super::disc::Disc;
use super::layout::Size;
use super::style::{CSS, NO_WORKER};
use super::tree::nest;
use albacore_svg::{Svg, bold_width, text_width};

const MARGIN: f64 = 20.0;
const MAIN_RADIUS: f64 = 11.0;
const PEER_RADIUS: f64 = 8.0;
/// Side length of the square around a disc.
const SPOT: f64 = 24.0;
/// Space for the CPU number above the discs.
const ID_ROOM: f64 = 15.0;
const CELL_PAD: f64 = 3.0;
/// Height of one line of the legend.
const LEGEND_LINE: f64 = 26.0;

/// The content of a picture.
pub(super) struct Picture<'a> {
    pub(super) head: Heading,
    /// The whole machine, including CPUs outside the cpuset.
    pub(super) machine: &'a Topology,
    pub(super) usable: CpuSet,
    pub(super) on_cpus: BTreeMap<CpuId, Vec<ThreadMark>>,
    pub(super) legend: Vec<(String, LegendKey)>,
}

/// The lines above the picture of the machine.
pub(super) struct Heading {
    pub(super) title: String,
    pub(super) summary: String,
    pub(super) verdict: String,
    pub(super) is_optimal: bool,
    /// Additional lines: relaxed rules, moved threads.
    pub(super) notes: Vec<String>,
}

/// A disc on a cpu.
pub(super) struct ThreadMark {
    pub(super) label: String,
    pub(super) color: String,
    pub(super) is_main: bool,
    pub(super) is_moved: bool,
    /// The tooltip.
    pub(super) title: String,
}

/// The symbol of a legend entry.
pub(super) enum LegendKey {
    Main,
    Peer,
    Moved,
    Others,
    /// A color and the label of its discs.
    Color(String, String),
}

impl Picture<'_> {
    /// The picture as SVG.
    pub(super) fn svg(&self) -> String {
        let cell = Cell::for_threads(self.on_cpus.values().map(Vec::len).max().unwrap_or(1));
        let parts = nest(self.machine);
        let boxes = Boxes::lay_out(&parts, cell.size(), 2.2);
        let width = 2.0 * MARGIN + boxes.size().w.max(self.head.width());
        let mut svg = Svg::default();
        let top = self.head.draw(&mut svg);
        let left = (width - boxes.size().w) / 2.0;
        boxes.draw(&mut svg, (left, top), &mut |svg, cpu, corner| {
            self.draw_cpu(svg, cell, cpu, corner);
        });
        let bottom = self.draw_legend(&mut svg, top + boxes.size().h, width);
        svg.finish(
            (width, bottom),
            &format!("{}: {}", self.head.title, self.head.verdict),
            CSS,
        )
    }

    fn draw_cpu(&self, svg: &mut Svg, cell: Cell, cpu: &Cpu, (x, y): (f64, f64)) {
        let is_usable = self.usable.contains(cpu.id);
        let class = if is_usable { "id" } else { "id out" };
        svg.text(class, (x + 5.0, y + 11.0), &cpu.id.to_string());
        let marks = self.on_cpus.get(&cpu.id).map(Vec::as_slice);
        let marks = marks.unwrap_or_default();
        for (i, mark) in marks.iter().enumerate() {
            let disc = Disc {
                center: cell.spot(i, marks.len(), (x, y)),
                radius: if mark.is_main {
                    MAIN_RADIUS
                } else {
                    PEER_RADIUS
                },
                color: &mark.color,
                is_main: mark.is_main,
                is_moved: mark.is_moved,
                label: &mark.label,
                title: &mark.title,
            };
            disc.draw(svg);
        }
    }

    /// Draws the legend below `y`; returns the bottom edge of the picture.
    fn draw_legend(&self, svg: &mut Svg, y: f64, width: f64) -> f64 {
        let (mut x, mut y) = (MARGIN, y + 14.0 + LEGEND_LINE / 2.0);
        for (text, sign) in &self.legend {
            let room = 2.0 * MAIN_RADIUS + 6.0 + text_width(text, 13.0);
            if x + room > width - MARGIN && x > MARGIN {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            draw_legend_key(svg, (x + MAIN_RADIUS, y), sign, text);
            svg.text("sub", (x + 2.0 * MAIN_RADIUS + 6.0, y + 4.5), text);
            x += room + 16.0;
        }
        y + LEGEND_LINE / 2.0 + MARGIN - 6.0
    }
}

/// The grid of discs on a CPU, with `columns` x `rows` spots.
#[derive(Clone, Copy, Debug)]
struct Cell {
    columns: usize,
    rows: usize,
}

impl Cell {
    fn for_threads(most: usize) -> Self {
        let columns = (1..=8).find(|c| c * c >= most).unwrap_or(8);
        Self {
            columns,
            rows: most.div_ceil(columns),
        }
    }

    fn size(self) -> Size {
        let w = (self.columns as f64 * SPOT + 2.0 * CELL_PAD).max(38.0);
        Size {
            w,
            h: ID_ROOM + self.rows as f64 * SPOT + CELL_PAD,
        }
    }

    /// Center of spot `i` if `count` are used; a partly filled row is centered.
    fn spot(self, i: usize, count: usize, (x, y): (f64, f64)) -> (f64, f64) {
        let in_row = self.columns.min(count - i / self.columns * self.columns);
        let left = (self.size().w - in_row as f64 * SPOT) / 2.0;
        let column = (i % self.columns) as f64;
        let row = (i / self.columns) as f64;
        (
            x + left + (column + 0.5) * SPOT,
            y + ID_ROOM + (row + 0.5) * SPOT - 1.0,
        )
    }
}

impl Heading {
    fn width(&self) -> f64 {
        let title = bold_width(&self.title, 20.0);
        let bold = self.notes.iter().chain([&self.verdict]);
        let bold = bold.map(|line| bold_width(line, 13.0)).fold(0.0, f64::max);
        title.max(text_width(&self.summary, 13.0)).max(bold)
    }

    /// Draws the lines; returns the top edge of the machine.
    fn draw(&self, svg: &mut Svg) -> f64 {
        let mut y = MARGIN + 16.0;
        svg.text("title", (MARGIN, y), &self.title);
        y += 23.0;
        svg.text("sub", (MARGIN, y), &self.summary);
        y += 19.0;
        let verdict = if self.is_optimal { "good" } else { "sub" };
        svg.text(verdict, (MARGIN, y), &self.verdict);
        for note in &self.notes {
            y += 19.0;
            svg.text("note", (MARGIN, y), note);
        }
        y + 16.0
    }
}

fn draw_legend_key(svg: &mut Svg, center: (f64, f64), key: &LegendKey, title: &str) {
    let (radius, color, label) = match key {
        LegendKey::Main => (MAIN_RADIUS, NO_WORKER, ""),
        LegendKey::Peer | LegendKey::Moved => (PEER_RADIUS, NO_WORKER, ""),
        LegendKey::Others => (PEER_RADIUS, NO_WORKER, "+n"),
        LegendKey::Color(color, label) => (PEER_RADIUS, color.as_str(), label.as_str()),
    };
    let disc = Disc {
        center,
        radius,
        color,
        is_main: matches!(key, LegendKey::Main | LegendKey::Color(..)),
        is_moved: matches!(key, LegendKey::Moved),
        label,
        title,
    };
    disc.draw(svg);
}

/// Formats as `objective 1,234 cycles, proven optimal`.
pub(super) fn verdict(certificate: &albacore_solver::Certificate) -> String {
    let objective = grouped(certificate.objective);
    if certificate.optimal {
        return format!("objective {objective} cycles, proven optimal");
    }
    let bound = grouped(certificate.bound);
    format!("objective {objective} of at most {bound} cycles")
}

/// Formats a number with thousands separators.
pub(super) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 {
        format!("−{text}")
    } else {
        text
    }
}
