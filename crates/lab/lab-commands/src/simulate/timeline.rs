//! Batches of workers over time, as text and as SVG.

use std::fmt::Write as _;

use super::example::Bar;
use albacore_simulator::chart::{color, frame};
use albacore_svg::Svg;

/// Width of the chart in units of time, and pixels per unit.
const SPAN: f64 = 46.0;
const UNIT: f64 = 22.0;
const ROW: f64 = 34.0;
const LEFT: f64 = 56.0;
/// Approximate width of a character.
const CHARACTER: f64 = 7.5;

pub(super) struct Timeline {
    pub(super) name: &'static str,
    pub(super) bars: Vec<Bar>,
    /// Times and numbers of dropped requests.
    pub(super) drops: Vec<(f64, u64)>,
}

impl Timeline {
    fn workers(&self) -> usize {
        self.bars
            .iter()
            .map(|bar| bar.worker + 1)
            .max()
            .unwrap_or(0)
    }

    /// Summary of the outcome, as a sentence.
    fn summary(&self) -> String {
        let full = self
            .bars
            .iter()
            .filter(|bar| bar.last - bar.first == 3)
            .count();
        let drops = match self.drops.as_slice() {
            [] => "nothing is dropped".to_owned(),
            [(_, first), ..] => format!("{} dropped, R{first} first", self.drops.len()),
        };
        let name = self.name;
        format!(
            "{name}: {full} of {} batches have 4 requests, {drops}",
            self.bars.len()
        )
    }
}

/// Text chart with four characters per unit of time.
pub(super) fn text(timelines: &[Timeline]) -> String {
    let mut out = String::from(
        "3 workers, l(b) = b + 5, objective 12, a request each 0.75; R13, R14 and R15 are missing.\n",
    );
    for timeline in timelines {
        // infallible, here and below: writing to a String.
        let _ = writeln!(out, "\n{}", timeline.summary());
        for worker in 0..timeline.workers() {
            let mut row = vec![' '; (SPAN * 4.0) as usize];
            for bar in timeline.bars.iter().filter(|bar| bar.worker == worker) {
                let (start, end) = ((bar.start * 4.0) as usize, (bar.end * 4.0) as usize);
                let label = format!("[{}", label(bar));
                let end = end.min(row.len());
                for (place, at) in row[start.min(end)..end].iter_mut().enumerate() {
                    *at = label.chars().nth(place).unwrap_or('-');
                }
            }
            let row: String = row.into_iter().collect();
            let _ = writeln!(out, "worker {worker} {}", row.trim_end());
        }
        let ticks = (0..SPAN as usize / 5).fold(String::new(), |mut ticks, n| {
            let _ = write!(ticks, "{:<20}", n * 5);
            ticks
        });
        let _ = writeln!(out, "time     {}", ticks.trim_end());
        if !timeline.drops.is_empty() {
            let drops = timeline.drops.iter();
            let drops: Vec<_> = drops.map(|(at, n)| format!("R{n} at {at:.2}")).collect();
            let _ = writeln!(out, "dropped  {}", drops.join(", "));
        }
    }
    out
}

fn label(bar: &Bar) -> String {
    match bar.first == bar.last {
        true => format!("R{}", bar.first),
        false => format!("R{}-R{}", bar.first, bar.last),
    }
}

pub(super) fn svg(timelines: &[Timeline]) -> String {
    let mut svg = Svg::default();
    let mut y = 92.0;
    for timeline in timelines {
        svg.put(format_args!(
            "<text class=\"name\" x=\"{LEFT}\" y=\"{}\">{}</text>",
            y - 10.0,
            timeline.summary()
        ));
        for worker in 0..timeline.workers() {
            let top = y + worker as f64 * ROW;
            svg.put(format_args!(
                "<path class=\"grid\" d=\"M{LEFT} {}h{}\"/><text class=\"tick\" x=\"12\" \
                 y=\"{}\">worker {worker}</text>",
                top + ROW - 3.0,
                SPAN * UNIT,
                top + 20.0
            ));
        }
        draw_bars(&mut svg, timeline, y);
        let base = y + timeline.workers() as f64 * ROW;
        draw_drops(&mut svg, timeline, base);
        for tick in (0..=SPAN as u32).step_by(5) {
            svg.put(format_args!(
                "<text class=\"tick\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">{tick}</text>",
                LEFT + f64::from(tick) * UNIT,
                base + 22.0
            ));
        }
        y = base + 62.0;
    }
    frame(
        (LEFT * 2.0 + SPAN * UNIT, y - 20.0),
        "A gap in the arrivals",
        "3 workers, l(b) = b + 5, objective 12, a request each 0.75; R13 to R15 are missing",
        svg,
    )
}

/// Draws the batches of each worker; `y` is the top of the first worker.
fn draw_bars(svg: &mut Svg, timeline: &Timeline, y: f64) {
    for bar in timeline.bars.iter().filter(|bar| bar.start < SPAN) {
        let (x, end) = (LEFT + bar.start * UNIT, LEFT + bar.end.min(SPAN) * UNIT);
        let top = y + bar.worker as f64 * ROW;
        let text = label(bar);
        let is_room = end - x > text.len() as f64 * CHARACTER + 12.0;
        let text = if is_room { text.as_str() } else { "" };
        // First color for full batches, second color for smaller ones.
        let paint = color(usize::from(bar.last - bar.first < 3));
        svg.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\" rx=\"4\" \
             fill=\"{paint}\" fill-opacity=\".28\" stroke=\"{paint}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{text}</text>",
            end - x,
            ROW - 6.0,
            x + 6.0,
            top + 18.0
        ));
    }
}

/// Draws the dropped requests on the line `base` below the workers.
fn draw_drops(svg: &mut Svg, timeline: &Timeline, base: f64) {
    if !timeline.drops.is_empty() {
        svg.put(format_args!(
            "<text class=\"tick\" x=\"12\" y=\"{}\">dropped</text>",
            base + 9.0
        ));
    }
    for (at, number) in timeline.drops.iter().filter(|(at, _)| *at < SPAN) {
        svg.put(format_args!(
            "<circle class=\"drop\" cx=\"{:.1}\" cy=\"{}\" r=\"4\"><title>R{number} dropped \
             at {at:.2}</title></circle>",
            LEFT + at * UNIT,
            base + 6.0
        ));
    }
}
