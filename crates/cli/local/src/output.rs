//! Prints events: on a terminal, a live table with sentences above it; otherwise JSON lines.

use std::io::{IsTerminal as _, Write};

use albacore_api::counted;
use albacore_command::RunOutput;
use albacore_placer::{FrontRow, PlacerCounters, SlotRow};
use serde_json::Value;

use crate::table::ThreadTable;

/// Assumed height of a terminal, in lines, if it is unknown.
const TERMINAL_LINES: usize = 24;

pub(crate) enum EventOutput {
    /// One line of JSON per event.
    Json,
    Terminal(ThreadTable),
}

impl EventOutput {
    pub(crate) fn new(format: RunOutput) -> Self {
        let is_table = match format {
            RunOutput::Auto => std::io::stdout().is_terminal(),
            RunOutput::Table => true,
            RunOutput::Json => false,
        };
        match is_table {
            true => Self::Terminal(ThreadTable::default()),
            false => Self::Json,
        }
    }

    pub(crate) fn event(&mut self, event: &Value) {
        let mut out = std::io::stdout().lock();
        let done = match self {
            Self::Json => writeln!(out, "{event}").and_then(|()| out.flush()),
            Self::Terminal(table) => match sentence(event) {
                Some(text) => table.clear(&mut out).and_then(|()| writeln!(out, "{text}")),
                None => Ok(()),
            },
        };
        // A closed pipe must not stop the server.
        drop(done);
    }

    pub(crate) fn rows(
        &mut self,
        head: &str,
        rows: &[SlotRow],
        front: &[FrontRow],
        figures: &PlacerCounters,
    ) {
        let Self::Terminal(table) = self else { return };
        let head = match figures.respawn_micros.quantile_bound(0.99) {
            Some(p99) => format!("{head}; respawn to verified p99 {:.1} ms", p99 as f64 / 1e3),
            None => head.to_owned(),
        };
        let height = albacore_os::terminal_lines().unwrap_or(TERMINAL_LINES);
        drop(table.draw(&mut std::io::stdout().lock(), &head, rows, front, height));
    }
}

/// The sentence for a terminal; `None` for events that are visible in the table.
fn sentence(event: &Value) -> Option<String> {
    let field = |name: &str| match &event[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let whole = |name: &str| event[name].as_i64().unwrap_or_default();
    let text = match event["event"].as_str()? {
        "listening" => format!("listening: HTTP {}, gRPC {}", field("http"), field("grpc")),
        "planned" => format!(
            "planned for cpus {}: objective {} (bound {}, {}), solved in {} us",
            field("cpuset"),
            field("objective"),
            field("bound"),
            if event["optimal"] == true {
                "optimal"
            } else {
                "not proven optimal"
            },
            field("solve_micros"),
        ),
        "drift" | "front_drift" if event["cause"] != "new_thread" => format!(
            "{}: mask was {} instead of {} ({})",
            thread(event),
            field("actual"),
            field("planned"),
            field("cause"),
        ),
        "worker_gone" => format!(
            "worker {} (process {}) ended",
            field("worker"),
            field("pid")
        ),
        "self_pinned" => format!(
            "{}: another program changed its mask {} times in {} s; it is written again in {} s, \
             or at once after an edit of the file (stop the program that sets masks: \
             OMP_PROC_BIND, taskset; or set placement.policy: None)",
            thread(event),
            field("changes"),
            field("seconds"),
            field("retry_seconds"),
        ),
        "cpuset_changed" => format!("the cpuset is {} now", field("cpuset")),
        "machine_changed" => format!("online cpus are {} now", field("online")),
        "step_failed" => format!("thread {}: {}", field("tid"), field("reason")),
        "restored" if event["errors_total"] != 0 => format!(
            "{} restored, {} not: {}",
            counted(whole("threads"), "mask"),
            field("errors_total"),
            field("errors")
        ),
        "restored" => format!("{} restored", counted(whole("threads"), "mask")),
        "server_ended" | "server_restarted" => restart_sentence(event),
        "note" | "trial_decided" => field("text"),
        "server_said" => field("text"),
        "policy_changed" => format!(
            "policy {} from now on ({}, mode {}, main threads {})",
            field("policy"),
            field("enforcement"),
            field("mode"),
            field("main_thread"),
        ),
        "draining" => "draining: no new requests, accepted ones are answered".into(),
        _ => return None,
    };
    Some(text)
}

/// The thread of an event.
fn thread(event: &Value) -> String {
    let (tid, worker, rank) = (&event["tid"], &event["worker"], &event["rank"]);
    match (event["front"].as_u64(), worker.is_null()) {
        (Some(front), _) => format!("event loop {front} (thread {tid})"),
        (None, true) => format!("thread {tid}"),
        (None, false) => format!("worker {worker} rank {rank} (thread {tid})"),
    }
}

/// The sentence for an exit or a restart of the server.
fn restart_sentence(event: &Value) -> String {
    let pid = &event["pid"];
    match event["how"].as_str() {
        Some(how) => {
            let pause = event["restart_in_ms"].as_f64().unwrap_or_default() / 1e3;
            format!(
                "the server (process {pid}) ended with {how}; it is started again in {pause:.1} s"
            )
        }
        None => format!(
            "the server is started again as process {pid} (restart {})",
            event["restarts"]
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use albacore_os::Pid;

    use super::*;
    use crate::events;

    #[test]
    fn exit_and_restart_of_the_server_are_printed_on_a_terminal() {
        let ended = events::server_ended(Pid(7), "signal: 9 (SIGKILL)", Duration::from_millis(200));
        let text = sentence(&ended).unwrap();
        assert!(text.contains("process 7") && text.contains("SIGKILL") && text.contains("0.2 s"));
        let text = sentence(&events::server_restarted(Pid(8), 3)).unwrap();
        assert!(text.contains("process 8") && text.contains("restart 3"));
    }
}
