//! Line charts over a common axis, four panels to a picture, as SVG.

use albacore_svg::{Svg, escape};

/// Easily distinguishable, also with most color vision deficiencies.
const COLORS: [&str; 8] = [
    "#2563eb", "#e0520d", "#0f9d6b", "#c026a3", "#b58105", "#7c3aed", "#0891b2", "#dc2647",
];

/// Colors by CSS class; dark mode swaps background and foreground.
const CSS: &str = "text{font-family:Inter,ui-sans-serif,system-ui,sans-serif;\
fill:#1f2733;font-size:12px}.title{font-size:20px;font-weight:700}.sub{font-size:13px;\
fill:#556070}.name{font-weight:600}.tick{fill:#7a8698;font-size:10px}.ground{fill:#fbfcfd;\
stroke:#d5dbe3}.grid{stroke:#e3e9f1;fill:none}.line{fill:none;stroke-linejoin:round}\
.panel{fill:#ffffff;stroke:#d5dbe3}.drop{fill:#dc2647}\
@media (prefers-color-scheme:dark){text{fill:#e4e9f0}.sub,.tick{fill:#9aa6b6}\
.ground{fill:#12171f;stroke:#2b3442}.panel{fill:#10151c;stroke:#333e4d}.grid{stroke:#262f3b}}";

const PANEL: (f64, f64) = (400.0, 220.0);
const MARGIN: f64 = 56.0;
const TOP: f64 = 84.0;
/// Number of intervals of an axis.
const PARTS: u32 = 4;
/// Longest name that leaves room for a second one on the same row.
const NAME_CHARACTERS: usize = 50;
/// Each line is drawn thinner and above the previous one: coinciding lines stay visible.
const LINE_WIDTH_STEP: f64 = 1.3;

#[derive(Debug)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Pairs of horizontal and vertical values.
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug)]
pub struct Chart {
    /// Label of the vertical axis.
    pub title: String,
    /// Whether the values are shares, shown in percent.
    pub is_share: bool,
    /// In legend order.
    pub lines: Vec<Line>,
    /// Positions on the horizontal axis and their labels; empty for round numbers.
    pub ticks: Vec<(f64, String)>,
}

/// Color of line number `index`.
#[must_use]
pub fn color(index: usize) -> &'static str {
    COLORS[index % COLORS.len()]
}

#[must_use]
pub fn draw(title: &str, sub: &str, charts: &[Chart]) -> String {
    let rows = charts.len().div_ceil(2) as f64;
    let names = charts.first().map_or(&[][..], |chart| &chart.lines[..]);
    let is_wide = names
        .iter()
        .any(|line| line.name.chars().count() > NAME_CHARACTERS);
    let columns = if is_wide { 1 } else { 2 };
    let legend = names.len().div_ceil(columns) as f64 * 20.0;
    let height = TOP + rows * (PANEL.1 + MARGIN) + legend + 12.0;
    let mut svg = Svg::default();
    for (index, chart) in charts.iter().enumerate() {
        let x = MARGIN + (index % 2) as f64 * (PANEL.0 + MARGIN);
        let y = TOP + (index / 2) as f64 * (PANEL.1 + MARGIN);
        panel(&mut svg, chart, (x, y));
    }
    for (index, line) in names.iter().enumerate() {
        let x = MARGIN + (index % columns) as f64 * (PANEL.0 + MARGIN);
        let y = TOP + rows * (PANEL.1 + MARGIN) + (index / columns) as f64 * 20.0;
        let name = escape(&line.name);
        svg.put(format_args!(
            "<rect x=\"{x}\" y=\"{}\" width=\"18\" height=\"4\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{name}</text>",
            y - 6.0,
            color(index),
            x + 26.0,
            y
        ));
    }
    frame((2.0 * (PANEL.0 + MARGIN) + MARGIN, height), title, sub, svg)
}

/// The SVG document of a drawing, with background, title and subtitle.
#[must_use]
pub fn frame(size: (f64, f64), title: &str, sub: &str, mut svg: Svg) -> String {
    svg.text("title", (MARGIN, 36.0), title);
    svg.text("sub", (MARGIN, 56.0), sub);
    svg.finish(size, title, CSS)
}

/// Upper end of an axis with [`PARTS`] round intervals that includes `value`.
fn axis_end(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let part = value / f64::from(PARTS);
    let power = 10_f64.powf(part.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps
        .into_iter()
        .find(|step| step * power >= part * 0.999_999);
    step.unwrap_or(10.0) * power * f64::from(PARTS)
}

fn panel(svg: &mut Svg, chart: &Chart, (x, y): (f64, f64)) {
    let all = || chart.lines.iter().flat_map(|line| &line.points);
    let x_max = all().map(|point| point.0).fold(0.0, f64::max);
    let x_max = match chart.ticks.is_empty() {
        true => axis_end(x_max),
        false => x_max.max(f64::MIN_POSITIVE),
    };
    let y_max = axis_end(all().map(|point| point.1).fold(0.0, f64::max));
    let place = |(px, py): (f64, f64)| {
        let px = x + px / x_max * PANEL.0;
        (px, y + PANEL.1 - py / y_max * PANEL.1)
    };
    svg.put(format_args!(
        "<rect class=\"panel\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\"/>\
         <text class=\"name\" x=\"{x}\" y=\"{}\">{}</text>",
        PANEL.0,
        PANEL.1,
        y - 8.0,
        escape(&chart.title)
    ));
    for part in 0..=PARTS {
        let share = f64::from(part) / f64::from(PARTS);
        let (_, at) = place((0.0, share * y_max));
        let value = match chart.is_share {
            true => format!("{:.3}%", share * y_max * 100.0),
            false => format!("{:.2}", share * y_max),
        };
        let value = trim_zeros(&value);
        svg.put(format_args!(
            "<path class=\"grid\" d=\"M{x} {at:.1}h{}\"/><text class=\"tick\" \
             text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{value}</text>",
            PANEL.0,
            x - 4.0,
            at + 3.0,
        ));
    }
    let round = (0..=PARTS).map(|part| {
        let position = f64::from(part) / f64::from(PARTS) * x_max;
        (position, trim_zeros(&format!("{position:.2}")))
    });
    let round: Vec<(f64, String)> = round.collect();
    let ticks = if chart.ticks.is_empty() {
        &round
    } else {
        &chart.ticks
    };
    for (position, label) in ticks {
        let (at, _) = place((*position, 0.0));
        svg.put(format_args!(
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{}\">{label}</text>",
            y + PANEL.1 + 14.0
        ));
    }
    for (index, line) in chart.lines.iter().enumerate() {
        let points: Vec<String> = line
            .points
            .iter()
            .map(|&point| place(point))
            .map(|(px, py)| format!("{px:.1},{py:.1}"))
            .collect();
        svg.put(format_args!(
            "<polyline class=\"line\" stroke=\"{}\" stroke-width=\"{:.1}\" points=\"{}\"/>",
            color(index),
            1.5 + LINE_WIDTH_STEP * (chart.lines.len() - 1 - index) as f64,
            points.join(" ")
        ));
    }
}

/// Strips trailing zeros of a number.
fn trim_zeros(text: &str) -> String {
    let (number, unit) = text.split_at(text.find('%').unwrap_or(text.len()));
    match number.contains('.') {
        true => format!(
            "{}{unit}",
            number.trim_end_matches('0').trim_end_matches('.')
        ),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let cases = [
            (0.0, 1.0),
            (0.07, 0.08),
            (1.0, 1.0),
            (1.3, 1.6),
            (2200.0, 2400.0),
            (7e4, 8e4),
            (12.0, 12.0),
            (7972.0, 8000.0),
        ];
        for (value, end) in cases {
            assert!((axis_end(value) - end).abs() < 1e-9 * end, "{value}");
        }
        assert_eq!(trim_zeros("2.50%"), "2.5%");
        assert_eq!(trim_zeros("100"), "100");
        assert_eq!(trim_zeros("5.00"), "5");
    }
}
