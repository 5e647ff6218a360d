//! The SVG elements that the pictures need.

use std::fmt::Write as _;

use super::style::CSS;

/// A growing picture.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// A rectangle with round corners.
    pub(super) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), radius: f64) {
        let ((x, y), (w, h)) = (corner, size);
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"/>",
            N(x),
            N(y),
            N(w),
            N(h),
            N(radius)
        ));
    }

    /// A text; `(x, y)` is the start of its baseline, or the middle if the class sets
    /// `text-anchor`.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\">{text}</text>",
            N(x),
            N(y)
        ));
    }

    /// A thread: a disc with a label, opaque for a main thread and translucent for a peer, in a
    /// ring if it moves.
    pub(super) fn disc(&mut self, disc: &Disc<'_>) {
        let (x, y) = disc.center;
        let (class, paint) = if disc.is_main {
            ("main", format!("fill=\"{}\"", disc.color))
        } else {
            ("peer", format!("fill=\"{0}\" stroke=\"{0}\"", disc.color))
        };
        let font = disc.radius * if disc.label.len() > 2 { 0.8 } else { 1.05 };
        let (title, label) = (escape(disc.title), escape(disc.label));
        let ring = if disc.is_moved {
            let radius = N(disc.radius + 0.5);
            format!(
                "<circle class=\"moved\" cx=\"{}\" cy=\"{}\" r=\"{radius}\"/>",
                N(x),
                N(y)
            )
        } else {
            String::new()
        };
        self.put(format_args!(
            "<g><title>{title}</title><circle class=\"{class}\" {paint} cx=\"{}\" cy=\"{}\" \
             r=\"{}\"/>{ring}<text class=\"{class}text\" font-size=\"{}\" x=\"{}\" y=\"{}\">\
             {label}</text></g>",
            N(x),
            N(y),
            N(disc.radius),
            N(font),
            N(x),
            N(y + font * 0.36)
        ));
    }

    pub(super) fn finish(self, (w, h): (f64, f64), title: &str) -> String {
        let title = escape(title);
        let mut out = String::with_capacity(self.body.len() + CSS.len() + 512);
        // infallible: writing to a String.
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" \
             viewBox=\"0 0 {0} {1}\" role=\"img\">\n<title>{title}</title>\n<style>{CSS}</style>\n\
             <rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{2}\" height=\"{3}\" rx=\"14\"/>\n\
             {4}</svg>\n",
            N(w),
            N(h),
            N(w - 1.0),
            N(h - 1.0),
            self.body
        );
        out
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // infallible: writing to a String.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }
}

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

/// How wide a text of ordinary weight is at a font size: an upper estimate, fonts differ.
pub(super) fn text_width(text: &str, font: f64) -> f64 {
    text.chars().count() as f64 * font * 0.53
}

/// How wide a bold text is at a font size: an upper estimate, fonts differ.
pub(super) fn bold_width(text: &str, font: f64) -> f64 {
    text.chars().count() as f64 * font * 0.6
}

/// A coordinate with at most one decimal.
struct N(f64);

impl std::fmt::Display for N {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round();
        write!(f, "{}", tenths / 10.0)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
