//! The live table on a terminal: redrawn in place, one line per managed thread.

use std::io::Write;

use albacore_placer::{FrontRow, LoadClass, SlotRow, SlotState};
use albacore_topology::CpuSet;

/// The table, with the height of its last drawing.
#[derive(Default)]
pub(crate) struct ThreadTable {
    lines_drawn: usize,
}

impl ThreadTable {
    /// Draws over the previous table; `height` is the height of the terminal in lines.
    ///
    /// # Errors
    /// Writing to the terminal fails.
    pub(crate) fn draw(
        &mut self,
        out: &mut impl Write,
        head: &str,
        rows: &[SlotRow],
        front: &[FrontRow],
        height: usize,
    ) -> std::io::Result<()> {
        let text = render(head, rows, front, height.saturating_sub(2).max(3));
        if self.lines_drawn > 0 {
            write!(out, "\x1b[{}A", self.lines_drawn)?;
        }
        // Line wrapping is disabled: a wrapped line would shift the start of the next drawing.
        write!(out, "\x1b[?7l")?;
        for line in &text {
            writeln!(out, "\x1b[2K{line}")?;
        }
        write!(out, "\x1b[J\x1b[?7h")?;
        self.lines_drawn = text.len();
        out.flush()
    }

    /// Clears the table, so that text can be written above its next drawing.
    pub(crate) fn clear(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        if self.lines_drawn > 0 {
            write!(out, "\x1b[{}A\x1b[J", self.lines_drawn)?;
            self.lines_drawn = 0;
        }
        Ok(())
    }
}

fn render(head: &str, rows: &[SlotRow], front: &[FrontRow], room: usize) -> Vec<String> {
    let lines: Vec<TableRow> = rows
        .iter()
        .map(TableRow::of_slot)
        .chain(front.iter().map(TableRow::of_front))
        .collect();
    let mut text = vec![head.to_owned()];
    let width = |title: &str, field: fn(&TableRow) -> &String| {
        let cells = lines.iter().map(|line| field(line).len());
        cells.max().unwrap_or(0).max(title.len())
    };
    let planned = width("planned", |line| &line.planned);
    let actual = width("actual", |line| &line.actual);
    text.push(format!(
        "worker rank      tid  {:<planned$}  {:<actual$}  verified  load  respawns",
        "planned", "actual"
    ));
    let shown = match lines.len() + 2 > room {
        true => room.saturating_sub(3),
        false => lines.len(),
    };
    for line in &lines[..shown] {
        text.push(format!(
            "{:>6} {:>4} {:>8}  {:<planned$}  {:<actual$}  {:>8}  {:<4}  {:>8}{}",
            line.worker,
            line.rank,
            line.tid,
            line.planned,
            line.actual,
            line.verified,
            line.load,
            line.respawns,
            if line.is_drifted { " <- drift" } else { "" }
        ));
    }
    if shown < lines.len() {
        text.push(format!("... and {} more threads", lines.len() - shown));
    }
    text
}

/// The text columns of one thread.
struct TableRow {
    worker: String,
    rank: u16,
    tid: String,
    planned: String,
    actual: String,
    verified: String,
    load: &'static str,
    respawns: String,
    is_drifted: bool,
}

impl TableRow {
    fn of_slot(row: &SlotRow) -> Self {
        let verified = row.verified_micros_ago;
        Self {
            worker: row.slot.worker.0.to_string(),
            rank: row.slot.rank.0,
            tid: row
                .tid
                .map_or_else(|| "-".to_owned(), |tid| tid.0.to_string()),
            planned: cpus(&row.planned),
            actual: cpus(&row.actual),
            verified: verified.map_or_else(|| "never".to_owned(), |micros| ago(micros / 1000)),
            load: row.load.map_or("-", LoadClass::name),
            respawns: row.respawns.to_string(),
            is_drifted: row.state == SlotState::Drifted,
        }
    }

    fn of_front(row: &FrontRow) -> Self {
        Self {
            worker: "front".to_owned(),
            rank: row.index,
            tid: row.tid.0.to_string(),
            planned: row.planned.to_string(),
            actual: row.actual.to_string(),
            verified: String::new(),
            load: "",
            respawns: String::new(),
            is_drifted: !row.is_verified(),
        }
    }
}

fn cpus(set: &Option<CpuSet>) -> String {
    set.as_ref()
        .map_or_else(|| "-".to_owned(), ToString::to_string)
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
    use albacore_os::{Pid, Tid};
    use albacore_placer::SubjectId;
    use albacore_solver::{Rank, Slot, WorkerIndex};

    use super::*;

    fn row(worker: u16, actual: &str) -> SlotRow {
        let is_drifted = actual != "0";
        SlotRow {
            subject: SubjectId(0),
            slot: Slot {
                worker: WorkerIndex(worker),
                rank: Rank(0),
            },
            pid: Some(Pid(4711)),
            tid: Some(Tid(4711)),
            planned: Some("0".parse().unwrap()),
            actual: Some(actual.parse().unwrap()),
            verified_micros_ago: Some(12_000),
            load: Some(LoadClass::Hot),
            respawns: 3,
            state: match is_drifted {
                true => SlotState::Drifted,
                false => SlotState::Verified,
            },
        }
    }

    #[test]
    fn a_thread_with_drift_is_marked() {
        let text = render("head", &[row(0, "0"), row(1, "0-1")], &[], 20);
        assert_eq!(text.len(), 4);
        assert!(text[2].ends_with("12 ms  hot          3"), "{:?}", text[2]);
        assert!(
            text[3].contains("0-1") && text[3].ends_with("<- drift"),
            "{:?}",
            text[3]
        );
    }

    #[test]
    fn event_loops_of_the_front_end_follow_the_workers() {
        let event_loop = FrontRow {
            index: 1,
            pid: Pid(7),
            tid: Tid(8),
            planned: "1-3".parse().unwrap(),
            actual: "1-3".parse().unwrap(),
        };
        let drifted = FrontRow {
            actual: "0-3".parse().unwrap(),
            ..event_loop.clone()
        };
        let text = render("head", &[row(0, "0")], &[event_loop, drifted], 20);
        assert_eq!(text[3].trim_end(), " front    1        8  1-3      1-3");
        assert!(
            text[4].contains("0-3") && text[4].ends_with("<- drift"),
            "{:?}",
            text[4]
        );
    }

    #[test]
    fn a_table_longer_than_the_terminal_is_cut_and_says_so() {
        let rows: Vec<SlotRow> = (0..50).map(|w| row(w, "0")).collect();
        let text = render("head", &rows, &[], 10);
        assert_eq!(text.len(), 10);
        assert_eq!(text[9], "... and 43 more threads");
    }

    #[test]
    fn a_redrawing_starts_where_the_last_one_did() {
        let (mut table, mut out) = (ThreadTable::default(), Vec::new());
        table
            .draw(&mut out, "head", &[row(0, "0")], &[], 24)
            .unwrap();
        assert!(!String::from_utf8(out.clone()).unwrap().contains('A'));
        out.clear();
        table
            .draw(&mut out, "head", &[row(0, "0")], &[], 24)
            .unwrap();
        assert!(String::from_utf8(out).unwrap().starts_with("\x1b[3A"));
    }
}
