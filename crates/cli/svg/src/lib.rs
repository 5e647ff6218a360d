//! SVG pictures: basic elements, and the frame shared by all pictures.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

/// A picture to which elements are added.
#[derive(Debug, Default)]
pub struct Svg {
    body: String,
}

impl Svg {
    /// Adds a rectangle with round corners.
    pub fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), radius: f64) {
        let ((x, y), (w, h)) = (corner, size);
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"/>",
            Coordinate(x),
            Coordinate(y),
            Coordinate(w),
            Coordinate(h),
            Coordinate(radius)
        ));
    }

    /// Adds a text; `(x, y)` is the start of its baseline, or the middle if the class sets
    /// `text-anchor`.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\">{text}</text>",
            Coordinate(x),
            Coordinate(y)
        ));
    }

    /// Returns the document: the elements on a background with round corners. `css` styles the
    /// classes, including `ground`, the class of the background.
    #[must_use]
    pub fn finish(self, (w, h): (f64, f64), title: &str, css: &str) -> String {
        let title = escape(title);
        let mut out = String::with_capacity(self.body.len() + css.len() + 512);
        // infallible: writing to a String.
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" \
             viewBox=\"0 0 {0} {1}\" role=\"img\">\n<title>{title}</title>\n<style>{css}</style>\n\
             <rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{2}\" height=\"{3}\" rx=\"14\"/>\n\
             {4}</svg>\n",
            Coordinate(w),
            Coordinate(h),
            Coordinate(w - 1.0),
            Coordinate(h - 1.0),
            self.body
        );
        out
    }

    /// Adds any element; texts in it must be escaped ([`escape`]).
    pub fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // infallible: writing to a String.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }
}

/// Estimated width of a text of regular weight at a font size: an upper bound, because fonts
/// differ.
#[must_use]
pub fn text_width(text: &str, font: f64) -> f64 {
    text.chars().count() as f64 * font * 0.53
}

/// Estimated width of a bold text at a font size: an upper bound, because fonts differ.
#[must_use]
pub fn bold_width(text: &str, font: f64) -> f64 {
    text.chars().count() as f64 * font * 0.6
}

/// A coordinate with at most one decimal.
#[derive(Clone, Copy, Debug)]
pub struct Coordinate(pub f64);

impl std::fmt::Display for Coordinate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round();
        write!(f, "{}", tenths / 10.0)
    }
}

/// Escapes a text for use as the content or attribute of an element.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
