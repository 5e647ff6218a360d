//! Events as JSON objects: snake_case, with the field `event` first. Events about event loops of
//! the front end have their own names, so that a filter for worker events excludes them.

use std::time::Duration;

use albacore_os::{Pid, Tid};
use albacore_placer::{FrontRow, LoadClass, MicrosHistogram, PlacerCounters, Report, SlotRow};
use albacore_plan::{
    BackOff, Enforcement, MainThread, Micros, PlacementMethod, PlacementWarning, SubjectPolicy,
};
use albacore_solver::{Mode, Slot};
use albacore_topology::CpuSet;
use albacore_trial::{Outcome, Verdict};
use serde_json::{Map, Value, json};

/// Builds an event named `name` with the fields of `fields`.
pub(crate) fn event(name: &str, fields: Value) -> Value {
    let mut object = Map::new();
    object.insert("event".into(), name.into());
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    Value::Object(object)
}

/// The event for a report of the placer.
pub(crate) fn of_report(report: &Report) -> Value {
    match report {
        Report::Planned { .. } => of_plan(report),
        Report::WorkerSpawned {
            worker,
            pid,
            respawns,
            ..
        } => event(
            "worker_born",
            json!({"worker": worker.0, "pid": pid.0, "respawns": respawns}),
        ),
        Report::WorkerExited { worker, pid, .. } => {
            event("worker_gone", json!({"worker": worker.0, "pid": pid.0}))
        }
        Report::CpusetChanged { cpuset, .. } => {
            event("cpuset_changed", json!({"cpuset": text(cpuset)}))
        }
        Report::MachineChanged { online } => {
            event("machine_changed", json!({"online": text(online)}))
        }
        Report::Warning { warning, .. } => note(&warning_text(warning)),
        Report::WeightsChanged {
            hot,
            other_hot,
            is_reordered,
            ..
        } => event(
            "weights_changed",
            json!({
                "hot_threads": hot,
                "other_hot_threads": other_hot,
                "reordered": is_reordered,
            }),
        ),
        Report::ForeignScheduler => {
            note("a sched_ext scheduler runs on this machine: masks are observed, not written")
        }
        Report::Distances { problem: None } => event("distances_read", json!({})),
        Report::Distances {
            problem: Some(problem),
        } => note(&format!("measured distances are not used: {problem}")),
        Report::UsualPriority => note(
            "placing runs at the usual priority (root or CAP_SYS_NICE would raise it): while every \
             cpu is busy, new threads are placed later",
        ),
        Report::PolicySet { .. } => event("policy_set", json!({})),
        Report::SubjectGone { .. } => event("server_gone", json!({})),
        Report::Released { restored, .. } | Report::Restored(restored) => event(
            "restored",
            json!({
                "threads": restored.count,
                "errors": restored.errors,
                "errors_total": restored.errors_total,
            }),
        ),
        Report::Failed { category, reason } => {
            event("failed", json!({"category": category, "reason": reason}))
        }
        Report::Pinned { .. }
        | Report::Drift { .. }
        | Report::BackedOff { .. }
        | Report::StepFailed { .. } => of_thread(report),
    }
}

/// The event for a plan; null for other reports.
fn of_plan(report: &Report) -> Value {
    let Report::Planned {
        cpuset,
        objective,
        bound,
        optimal,
        relaxed,
        solve_micros,
        ..
    } = report
    else {
        return Value::Null;
    };
    let relaxed = relaxed
        .iter()
        .map(|r| json!({"rule": r.rule, "amount": r.amount}));
    event(
        "planned",
        json!({
            "cpuset": text(cpuset),
            "objective": objective,
            "bound": bound,
            "optimal": optimal,
            "relaxed": relaxed.collect::<Value>(),
            "solve_micros": solve_micros,
        }),
    )
}

/// The event for a report about one thread; null for other reports.
fn of_thread(report: &Report) -> Value {
    match report {
        Report::Pinned {
            slot,
            front,
            pid,
            tid,
            mask,
            cause,
            spawn_to_verified_micros,
            kind,
            ..
        } => thread_event(
            "pinned",
            *slot,
            *front,
            json!({
                "pid": pid.0,
                "tid": tid.0,
                "cpus": text(mask),
                "cause": cause.name(),
                "kind": kind.name(),
                "birth_to_verified_us": spawn_to_verified_micros,
            }),
        ),
        Report::Drift {
            slot,
            front,
            pid,
            tid,
            planned,
            actual,
            cause,
            ..
        } => thread_event(
            "drift",
            *slot,
            *front,
            json!({
                "pid": pid.0,
                "tid": tid.0,
                "planned": text(planned),
                "actual": text(actual),
                "cause": cause.name(),
            }),
        ),
        Report::BackedOff {
            slot,
            tid,
            back_off,
            ..
        } => backed_off(*slot, *tid, back_off),
        Report::StepFailed { tid, reason, .. } => {
            event("step_failed", json!({"tid": tid.0, "reason": reason}))
        }
        _ => Value::Null,
    }
}

/// An event named `name` about a thread of a worker, or `front_<name>` about an event loop.
fn thread_event(name: &str, slot: Option<Slot>, front: Option<u16>, fields: Value) -> Value {
    let (name, mut object) = match front {
        Some(front) => (format!("front_{name}"), json!({ "front": front })),
        None => (
            name.to_owned(),
            json!({"worker": worker(slot), "rank": rank(slot)}),
        ),
    };
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
        object.extend(fields);
    }
    event(&name, object)
}

/// `note`: a sentence for people.
pub(crate) fn note(text: &str) -> Value {
    event("note", json!({ "text": text }))
}

/// `self_pinned`: back-off of a thread whose mask another program keeps changing. The name is part
/// of the output format; it predates the finding that the program cannot be identified.
fn backed_off(slot: Option<Slot>, tid: Tid, back_off: &BackOff) -> Value {
    event(
        "self_pinned",
        json!({
            "worker": worker(slot),
            "rank": rank(slot),
            "tid": tid.0,
            "changes": back_off.changes,
            "seconds": seconds(back_off.first, back_off.last),
            "retry_seconds": seconds(back_off.last, back_off.retry_at),
        }),
    )
}

/// `placed`: every slot and every event loop of the front end is in its expected state.
pub(crate) fn placed(policy: &SubjectPolicy, rows: &[SlotRow], front: &[FrontRow]) -> Value {
    let threads: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "worker": row.slot.worker.0,
                "rank": row.slot.rank.0,
                "tid": row.tid.map(|tid| tid.0),
                "planned": row.planned.as_ref().or(row.actual.as_ref()).map(text),
                "actual": row.actual.as_ref().map(text),
                "state": row.state.name(),
                "load": row.load.map(LoadClass::name),
            })
        })
        .collect();
    let front: Vec<Value> = front
        .iter()
        .map(|row| {
            json!({
                "front": row.index,
                "pid": row.pid.0,
                "tid": row.tid.0,
                "planned": text(&row.planned),
                "actual": text(&row.actual),
            })
        })
        .collect();
    event(
        "placed",
        json!({
            "policy": policy_name(policy),
            "mode": mode_name(policy.mode),
            "threads": threads,
            "front_threads": front,
        }),
    )
}

/// `policy_changed`: an edit of the file changed the policy.
pub(crate) fn policy_changed(policy: &SubjectPolicy) -> Value {
    let enforcement = match policy.enforcement {
        Enforcement::Enforce => "enforce",
        Enforcement::Observe => "observe",
    };
    let main_thread = match policy.main_thread {
        MainThread::Pinned => "pinned",
        MainThread::WorkerSet => "worker_set",
    };
    event(
        "policy_changed",
        json!({
            "policy": policy_name(policy),
            "enforcement": enforcement,
            "mode": mode_name(policy.mode),
            "main_thread": main_thread,
        }),
    )
}

/// `trial_decided`: a trial of placements is over.
pub(crate) fn trial_decided(verdict: &Verdict) -> Value {
    let outcome = match verdict.outcome {
        Outcome::Kept => "kept",
        Outcome::Changed => "changed",
        Outcome::Withdrawn => "withdrawn",
    };
    event(
        "trial_decided",
        json!({
            "placement": verdict.winner.to_string(),
            "outcome": outcome,
            "text": verdict.text,
        }),
    )
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Scatter => "scatter",
        Mode::Compact => "compact",
    }
}

/// Name of a placement in events and in the heading of the table.
pub(crate) fn policy_name(policy: &SubjectPolicy) -> &'static str {
    match policy.placement {
        PlacementMethod::Tuna => "tuna",
        PlacementMethod::RoundRobin => "roundrobin",
        PlacementMethod::None => "none",
    }
}

/// `server_ended`: the server exited and is restarted after a pause.
pub(crate) fn server_ended(pid: Pid, how: &str, pause: Duration) -> Value {
    let restart_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    event(
        "server_ended",
        json!({"pid": pid.0, "how": how, "restart_in_ms": restart_in_ms}),
    )
}

/// `server_restarted`, with the number of restarts so far.
pub(crate) fn server_restarted(pid: Pid, restarts: u64) -> Value {
    event(
        "server_restarted",
        json!({"pid": pid.0, "restarts": restarts}),
    )
}

/// `summary`: the counters of the whole run.
pub(crate) fn summary(figures: &PlacerCounters, server_restarts: u64) -> Value {
    event(
        "summary",
        json!({
            "server_restarts": server_restarts,
            "respawns": figures.respawns,
            "drifts": figures.drifts,
            "setaffinity_calls": figures.setaffinity_calls,
            "solves": figures.solves,
            "respawn_birth_to_verified_us": quantiles(&figures.respawn_micros),
            "new_thread_birth_to_verified_us": quantiles(&figures.new_thread_micros),
        }),
    )
}

fn quantiles(times: &MicrosHistogram) -> Value {
    json!({
        "count": times.count(),
        "p50": times.quantile_bound(0.5),
        "p99": times.quantile_bound(0.99),
    })
}

/// A warning as a sentence.
fn warning_text(warning: &PlacementWarning) -> String {
    match warning {
        PlacementWarning::WorkerCountMismatch { found, requested } => {
            format!("found {found} of {requested} workers")
        }
        PlacementWarning::DuplicateWorkerName { worker, pid } => {
            format!(
                "process {} also has the name of worker {}; the older process is used",
                pid.0, worker.0
            )
        }
        PlacementWarning::MissingThreads {
            worker,
            found,
            requested,
        } => {
            format!(
                "worker {} has {found} of {requested} compute threads",
                worker.0
            )
        }
        PlacementWarning::ExtraThreads { worker, count } => format!(
            "worker {} has {count} more threads than spec.threads; they get the cpus of their worker",
            worker.0
        ),
        PlacementWarning::PoolSizeUnsafe { worker } => format!(
            "the main thread of worker {} keeps its worker's cpus until all its threads exist: a \
             runtime that counts the cpus of that mask would start too few",
            worker.0
        ),
        PlacementWarning::BackedOff { thread, .. } => format!(
            "the mask of thread {} is not written for a while, because another program keeps changing it",
            thread.tid.0
        ),
        PlacementWarning::DistancesIgnored => {
            "spec.placement.distances is not used: other deployments on this machine set other \
             distances"
                .into()
        }
        PlacementWarning::SlowMains { count } => format!(
            "{count} main threads are on slow cores: the cpuset has fewer fast cores than workers, \
             or they are in use"
        ),
        PlacementWarning::EmptyCpuset => "the cpuset has no cpu: nothing can be placed".into(),
        PlacementWarning::InheritedAffinity { pid, mask } => format!(
            "process {} was started with the mask {mask}, narrower than its cpuset: the process that started it is pinned",
            pid.0
        ),
        other => format!("{other:?}"),
    }
}

/// Seconds between two timestamps, rounded up.
fn seconds(from: Micros, to: Micros) -> u64 {
    to.0.saturating_sub(from.0).div_ceil(1_000_000)
}

fn text(cpus: &CpuSet) -> String {
    cpus.to_string()
}

fn worker(slot: Option<Slot>) -> Option<u16> {
    slot.map(|slot| slot.worker.0)
}

fn rank(slot: Option<Slot>) -> Option<u16> {
    slot.map(|slot| slot.rank.0)
}
