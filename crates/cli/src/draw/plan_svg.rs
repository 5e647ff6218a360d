//! A plan as a picture: the machine as boxes, a disc for every thread. Main threads are large and full, peers small and
//! pale; each worker has a color and its number on all its threads.

use std::collections::BTreeMap;

use albacore_mapping::Slot;
use albacore_topology::{Cpu, CpuId};

use super::boxes::Boxes;
use super::layout::Size;
use super::plan_text::{counted, relaxed_line};
use super::style::{NO_WORKER, worker_color};
use super::svg::{Disc, Svg, bold_width, text_width};
use super::tree::{nest, summary};
use crate::plan_command::Plan;

const MARGIN: f64 = 20.0;
const MAIN_RADIUS: f64 = 11.0;
const PEER_RADIUS: f64 = 8.0;
/// Side of the square that a disc stands in.
const SPOT: f64 = 24.0;
/// Room for the cpu's number above the discs.
const ID_ROOM: f64 = 15.0;
const CELL_PAD: f64 = 3.0;
/// Room for one line of the legend.
const LEGEND_LINE: f64 = 26.0;
/// Workers named one by one in the legend; of more, the numbers on the discs tell.
const LEGEND_WORKERS_MAX: u16 = 16;

/// The plan as SVG.
pub(crate) fn plan_svg(plan: &Plan) -> String {
    let mut on_cpu: BTreeMap<CpuId, Vec<Slot>> = BTreeMap::new();
    for (slot, cpu) in plan.solution.mapping.iter() {
        on_cpu.entry(cpu).or_default().push(slot);
    }
    let cell = Cell::for_threads(on_cpu.values().map(Vec::len).max().unwrap_or(1));
    // A main thread first, where the eye begins.
    on_cpu
        .values_mut()
        .for_each(|slots| slots.sort_by_key(|s| (s.rank.0 != 0, s.worker, s.rank)));
    let parts = nest(&plan.whole);
    let boxes = Boxes::lay_out(&parts, cell.size(), 2.2);
    let head = Head::of(plan);
    let width = 2.0 * MARGIN + boxes.size().w.max(head.width());
    let mut svg = Svg::default();
    let top = head.draw(&mut svg);
    let left = (width - boxes.size().w) / 2.0;
    boxes.draw(&mut svg, (left, top), &mut |svg, cpu, corner| {
        let is_usable = plan.problem.topology.cpu(cpu.id).is_some();
        let slots = on_cpu.get(&cpu.id).map(Vec::as_slice).unwrap_or_default();
        draw_cpu(svg, cell, cpu, corner, (slots, is_usable));
    });
    let bottom = draw_legend(&mut svg, plan, top + boxes.size().h, width);
    svg.finish(
        (width, bottom),
        &format!("{}: {}", head.title, head.verdict),
    )
}

/// How the discs stand on a cpu: `columns` x `rows` spots.
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

    /// Center of spot `i` of `count` in use; a row that is not full is centered.
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

fn draw_cpu(
    svg: &mut Svg,
    cell: Cell,
    cpu: &Cpu,
    (x, y): (f64, f64),
    (slots, is_usable): (&[Slot], bool),
) {
    let class = if is_usable { "id" } else { "id out" };
    svg.text(class, (x + 5.0, y + 11.0), &cpu.id.to_string());
    for (i, slot) in slots.iter().enumerate() {
        let is_main = slot.rank.0 == 0;
        let (worker, rank) = (slot.worker.0, slot.rank.0);
        let role = if is_main { "main thread" } else { "peer" };
        svg.disc(&Disc {
            center: cell.spot(i, slots.len(), (x, y)),
            radius: if is_main { MAIN_RADIUS } else { PEER_RADIUS },
            color: worker_color(worker),
            is_main,
            label: &worker.to_string(),
            title: &format!("worker {worker}, rank {rank} ({role}) on cpu {}", cpu.id),
        });
    }
}

/// The lines above the machine.
struct Head {
    title: String,
    machine: String,
    verdict: String,
    is_optimal: bool,
    relaxed: Option<String>,
}

impl Head {
    fn of(plan: &Plan) -> Self {
        let (problem, certificate) = (&plan.problem, &plan.solution.certificate);
        let (objective, bound) = (grouped(certificate.objective), grouped(certificate.bound));
        let is_optimal = certificate.optimal;
        Self {
            title: format!(
                "{} × {} · {} · {}",
                counted(problem.workers, "worker"),
                counted(problem.threads, "thread"),
                plan.mode.name(),
                plan.policy.name()
            ),
            machine: summary(&problem.topology),
            verdict: if is_optimal {
                format!("objective {objective} cycles, proven optimal")
            } else {
                format!("objective {objective} of at most {bound} cycles")
            },
            is_optimal,
            relaxed: relaxed_line(plan).map(|rules| format!("relaxed: {rules}")),
        }
    }

    fn width(&self) -> f64 {
        let relaxed = self.relaxed.as_deref().unwrap_or_default();
        let title = bold_width(&self.title, 20.0);
        let bold = bold_width(&self.verdict, 13.0).max(bold_width(relaxed, 13.0));
        title.max(text_width(&self.machine, 13.0)).max(bold)
    }

    /// Draws the lines; where the machine begins.
    fn draw(&self, svg: &mut Svg) -> f64 {
        let mut y = MARGIN + 16.0;
        svg.text("title", (MARGIN, y), &self.title);
        y += 23.0;
        svg.text("sub", (MARGIN, y), &self.machine);
        y += 19.0;
        svg.text(
            if self.is_optimal { "good" } else { "sub" },
            (MARGIN, y),
            &self.verdict,
        );
        if let Some(relaxed) = &self.relaxed {
            y += 19.0;
            svg.text("note", (MARGIN, y), relaxed);
        }
        y + 16.0
    }
}

/// Draws the legend below `y`; where the picture ends.
fn draw_legend(svg: &mut Svg, plan: &Plan, y: f64, width: f64) -> f64 {
    let mut entries = vec![("main thread".to_owned(), Sign::Main)];
    if plan.problem.threads > 1 {
        entries.push(("peer thread".to_owned(), Sign::Peer));
    }
    if plan.problem.workers <= LEGEND_WORKERS_MAX {
        let named = (0..plan.problem.workers).map(|w| (format!("worker {w}"), Sign::Worker(w)));
        entries.extend(named);
    }
    let (mut x, mut y) = (MARGIN, y + 14.0 + LEGEND_LINE / 2.0);
    for (text, sign) in entries {
        let room = 2.0 * MAIN_RADIUS + 6.0 + text_width(&text, 13.0);
        if x + room > width - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + LEGEND_LINE);
        }
        draw_sign(svg, (x + MAIN_RADIUS, y), sign, &text);
        svg.text("sub", (x + 2.0 * MAIN_RADIUS + 6.0, y + 4.5), &text);
        x += room + 16.0;
    }
    y + LEGEND_LINE / 2.0 + MARGIN - 6.0
}

/// What a line of the legend explains.
#[derive(Clone, Copy)]
enum Sign {
    Main,
    Peer,
    Worker(u16),
}

fn draw_sign(svg: &mut Svg, center: (f64, f64), sign: Sign, title: &str) {
    let (radius, color, label) = match sign {
        Sign::Main => (MAIN_RADIUS, NO_WORKER, String::new()),
        Sign::Peer => (PEER_RADIUS, NO_WORKER, String::new()),
        Sign::Worker(worker) => (PEER_RADIUS, worker_color(worker), worker.to_string()),
    };
    let is_main = !matches!(sign, Sign::Peer);
    svg.disc(&Disc {
        center,
        radius,
        color,
        is_main,
        label: &label,
        title,
    });
}

/// A number with a comma between thousands.
fn grouped(number: i64) -> String {
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
