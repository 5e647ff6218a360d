//! The live table on a terminal: redrawn in place, one line per managed thread.

use std::io::Write;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadLine {
    pub(crate) worker: u16,
    pub(crate) rank: u16,
    pub(crate) tid: Option<i32>,
    pub(crate) planned: String,
    pub(crate) actual: String,
    pub(crate) is_drifted: bool,
    /// Milliseconds since the mask was last read and equal to the planned one.
    pub(crate) verified_ms_ago: Option<u64>,
    pub(crate) respawns: u32,
}

/// The table and the height of its last drawing.
#[derive(Default)]
pub(crate) struct Table {
    lines_drawn: usize,
}

impl Table {
    /// Draws over the previous table; `height` is that of the terminal, in lines.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub(crate) fn draw(
        &mut self,
        out: &mut impl Write,
        head: &str,
        lines: &[ThreadLine],
        height: usize,
    ) -> std::io::Result<()> {
        let text = render(head, lines, height.saturating_sub(2).max(3));
        if self.lines_drawn > 0 {
            write!(out, "\x1b[{}A", self.lines_drawn)?;
        }
        // Without line wrapping: a line that wrapped would shift the start of the next drawing.
        write!(out, "\x1b[?7l")?;
        for line in &text {
            writeln!(out, "\x1b[2K{line}")?;
        }
        write!(out, "\x1b[J\x1b[?7h")?;
        self.lines_drawn = text.len();
        out.flush()
    }

    /// Clears the table, so that text can be written above where it is drawn next.
    pub(crate) fn clear(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        if self.lines_drawn > 0 {
            write!(out, "\x1b[{}A\x1b[J", self.lines_drawn)?;
            self.lines_drawn = 0;
        }
        Ok(())
    }
}

fn render(head: &str, lines: &[ThreadLine], room: usize) -> Vec<String> {
    let mut text = vec![head.to_owned()];
    let (planned, actual) = (
        width(lines, "planned", |l| &l.planned),
        width(lines, "actual", |l| &l.actual),
    );
    text.push(format!(
        "worker rank      tid  {:<planned$}  {:<actual$}  verified  respawns",
        "planned", "actual"
    ));
    let shown = if lines.len() + 2 > room {
        room.saturating_sub(3)
    } else {
        lines.len()
    };
    for line in &lines[..shown] {
        let tid = line
            .tid
            .map_or_else(|| "-".to_owned(), |tid| tid.to_string());
        let verified = line.verified_ms_ago.map_or_else(|| "never".to_owned(), ago);
        let mark = if line.is_drifted { " <- drift" } else { "" };
        text.push(format!(
            "{:>6} {:>4} {:>8}  {:<planned$}  {:<actual$}  {:>8}  {:>8}{mark}",
            line.worker, line.rank, tid, line.planned, line.actual, verified, line.respawns
        ));
    }
    if shown < lines.len() {
        text.push(format!("... and {} more threads", lines.len() - shown));
    }
    text
}

fn width(lines: &[ThreadLine], title: &str, field: impl Fn(&ThreadLine) -> &String) -> usize {
    lines
        .iter()
        .map(|line| field(line).len())
        .max()
        .unwrap_or(0)
        .max(title.len())
}

fn ago(ms: u64) -> String {
    if ms < 1000 {
        format!("{ms} ms")
    } else {
        format!("{} s", ms / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(worker: u16, actual: &str) -> ThreadLine {
        ThreadLine {
            worker,
            rank: 0,
            tid: Some(4711),
            planned: "0".into(),
            actual: actual.into(),
            is_drifted: actual != "0",
            verified_ms_ago: Some(12),
            respawns: 3,
        }
    }

    #[test]
    fn a_thread_with_drift_is_marked() {
        let text = render("head", &[line(0, "0"), line(1, "0-1")], 20);
        assert_eq!(text.len(), 4);
        assert!(text[2].ends_with("12 ms         3"), "{:?}", text[2]);
        assert!(
            text[3].contains("0-1") && text[3].ends_with("<- drift"),
            "{:?}",
            text[3]
        );
    }

    #[test]
    fn a_table_longer_than_the_terminal_is_cut_and_says_so() {
        let lines: Vec<ThreadLine> = (0..50).map(|w| line(w, "0")).collect();
        let text = render("head", &lines, 10);
        assert_eq!(text.len(), 10);
        assert_eq!(text[9], "... and 43 more threads");
    }

    #[test]
    fn a_redrawing_starts_where_the_last_one_did() {
        let (mut table, mut out) = (Table::default(), Vec::new());
        table.draw(&mut out, "head", &[line(0, "0")], 24).unwrap();
        assert!(!String::from_utf8(out.clone()).unwrap().contains('A'));
        out.clear();
        table.draw(&mut out, "head", &[line(0, "0")], 24).unwrap();
        assert!(String::from_utf8(out).unwrap().starts_with("\x1b[3A"));
    }
}
