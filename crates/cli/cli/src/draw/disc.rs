//! Draws a thread on a CPU as a disc.

use albacore_svg::{Coordinate, Svg, escape};

/// A thread on a cpu.
#[derive(Debug)]
pub(super) struct Disc<'a> {
    pub(super) center: (f64, f64),
    pub(super) radius: f64,
    pub(super) color: &'a str,
    pub(super) is_main: bool,
    pub(super) is_moved: bool,
    pub(super) label: &'a str,
    /// The tooltip.
    pub(super) title: &'a str,
}

impl Disc<'_> {
    /// Draws a disc with a label, opaque for a main thread and translucent for a peer, with a ring
    /// if the thread moves.
    pub(super) fn draw(&self, svg: &mut Svg) {
        let (x, y) = self.center;
        let (class, paint) = if self.is_main {
            ("main", format!("fill=\"{}\"", self.color))
        } else {
            ("peer", format!("fill=\"{0}\" stroke=\"{0}\"", self.color))
        };
        let font = self.radius * if self.label.len() > 2 { 0.8 } else { 1.05 };
        let (title, label) = (escape(self.title), escape(self.label));
        let ring = if self.is_moved {
            let radius = Coordinate(self.radius + 0.5);
            format!(
                "<circle class=\"moved\" cx=\"{}\" cy=\"{}\" r=\"{radius}\"/>",
                Coordinate(x),
                Coordinate(y)
            )
        } else {
            String::new()
        };
        svg.put(format_args!(
            "<g><title>{title}</title><circle class=\"{class}\" {paint} cx=\"{}\" cy=\"{}\" \
             r=\"{}\"/>{ring}<text class=\"{class}text\" font-size=\"{}\" x=\"{}\" y=\"{}\">\
             {label}</text></g>",
            Coordinate(x),
            Coordinate(y),
            Coordinate(self.radius),
            Coordinate(font),
            Coordinate(x),
            Coordinate(y + font * 0.36)
        ));
    }
}
