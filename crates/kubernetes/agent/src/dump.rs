//! `albacore-agent dump`: prints every thread of this node's pods with its current mask.
//!
//! Plans with the same code and inputs as the agent and writes nothing, so its plan hash equals
//! that in the NodePlacement (P33).

use std::path::PathBuf;
use std::time::Instant;

use albacore_os::HostRoot;
use albacore_placer::{FrontRow, Placer, PlacerConfig, SlotRow, SubjectConfig, SubjectId};
use albacore_plan::{Enforcement, SubjectPolicy};
use albacore_values::sentence;
use anyhow::Context as _;
use serde_json::{Value, json};

use crate::args::Common;
use crate::connect::list_desired_pods;
use crate::desired::{DesiredPod, PodAction};
use crate::facts::plan_hash;
use crate::limits::{DUMP_TIME_MAX, TABLE_PAUSE};
use crate::locate::locate;

/// procfs under a path other than /proc, so that the placer never writes a mask.
const READ_ONLY_PROC: &str = "/proc/self/..";

/// Prints the threads of all pods, or of one.
pub(crate) async fn run(common: &Common, node: &str, pod: Option<&str>) -> anyhow::Result<()> {
    let desired = list_desired_pods(common, node).await?;
    if let Some(name) = pod
        && !desired.iter().any(|d| d.pod.key.to_string() == name)
    {
        anyhow::bail!(
            "node {node} has no pod {name} with the label albacore.dev/deployment or the \
             annotation albacore.dev/place: write NAMESPACE/NAME"
        );
    }
    let entries = entries(common, &desired)?;
    let shown = entries
        .into_iter()
        .filter(|entry| pod.is_none_or(|pod| entry["pod"] == pod));
    let list = Value::Array(shown.collect());
    println!("{list:#}");
    Ok(())
}

fn entries(common: &Common, desired: &[DesiredPod]) -> anyhow::Result<Vec<Value>> {
    let mut host = common.host();
    if host.is_live() {
        host.proc = PathBuf::from(READ_ONLY_PROC);
    }
    let config = PlacerConfig {
        host: host.clone(),
        limit: None,
        distances: common.distances.clone(),
    };
    let mut placer = Placer::new(config).context("cannot read the machine")?;
    let topology = placer.machine().hash64();
    let mut subjects: Vec<(&DesiredPod, Result<SubjectId, String>)> = Vec::new();
    for desired in desired {
        subjects.push((desired, add(&mut placer, &host, desired)));
    }
    let last = settled_rows(&mut placer)?;
    let states = placer.states();
    let entries = subjects
        .into_iter()
        .map(|(desired, subject)| match subject {
            Ok(id) => {
                let own: Vec<SlotRow> = last.iter().filter(|r| r.subject == id).cloned().collect();
                let mut states = states.iter();
                let state = states.find(|state| state.subject == id);
                let front = state.map_or(&[][..], |state| &state.front);
                entry(desired, &own, front, topology)
            }
            Err(reason) => {
                json!({"pod": desired.pod.key.to_string(), "reason": reason, "threads": []})
            }
        });
    Ok(entries.collect())
}

/// Steps the placer until two consecutive reads of its table are equal and something is planned.
fn settled_rows(placer: &mut Placer) -> anyhow::Result<Vec<SlotRow>> {
    let start = Instant::now();
    let mut last: Vec<SlotRow> = Vec::new();
    // bound: DUMP_TIME_MAX
    while start.elapsed() < DUMP_TIME_MAX {
        placer.step(TABLE_PAUSE, &mut |_| {})?;
        let without_age = |row| SlotRow {
            verified_micros_ago: None,
            ..row
        };
        let rows: Vec<SlotRow> = placer.table()?.into_iter().map(without_age).collect();
        let is_planned = rows.iter().any(|row| row.planned.is_some());
        if rows == last && (is_planned || start.elapsed() > TABLE_PAUSE * 4) {
            break;
        }
        last = rows;
    }
    Ok(last)
}

fn add(placer: &mut Placer, host: &HostRoot, desired: &DesiredPod) -> Result<SubjectId, String> {
    let (container, server_kind, policy) = match &desired.action {
        PodAction::Place {
            container,
            server_kind,
            policy,
            ..
        } => (container, server_kind, policy),
        PodAction::Keep { reason }
        | PodAction::Release { reason }
        | PodAction::Refuse { reason } => return Err(reason.clone()),
    };
    let located = locate(host, &desired.pod.uid, container).map_err(|a| a.text().to_owned())?;
    let config = SubjectConfig {
        root: located.root,
        server_kind: server_kind.unwrap_or(located.server_kind),
        policy: SubjectPolicy {
            enforcement: Enforcement::Enforce,
            ..policy.clone()
        },
        cgroup: Some(located.cgroup),
    };
    placer.add_subject(&config).map_err(|e| sentence(&e))
}

fn entry(desired: &DesiredPod, rows: &[SlotRow], front: &[FrontRow], topology: u64) -> Value {
    let threads: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "worker": row.slot.worker.0, "rank": row.slot.rank.0,
                "pid": row.pid.map(|pid| pid.0), "tid": row.tid.map(|tid| tid.0),
                "planned": row.planned.as_ref().map(ToString::to_string),
                "mask": row.actual.as_ref().map(ToString::to_string),
                "state": row.state.name(),
            })
        })
        .collect();
    let front: Vec<Value> = front
        .iter()
        .map(|row| {
            json!({
                "front": row.index, "pid": row.pid.0, "tid": row.tid.0,
                "planned": row.planned.to_string(), "mask": row.actual.to_string(),
                "state": if row.is_verified() { "verified" } else { "drifted" },
            })
        })
        .collect();
    json!({
        "pod": desired.pod.key.to_string(),
        "uid": desired.pod.uid,
        "deployment": desired.pod.opt_in.deployment(),
        "plan": plan_hash(rows, topology).map(|plan| format!("{plan:08x}")),
        "topology": format!("{topology:016x}"),
        "threads": threads,
        "front": front,
    })
}
