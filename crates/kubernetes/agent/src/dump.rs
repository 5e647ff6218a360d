//! `albacore-agent dump`: every thread of this node's pods, from the kernel as it is now.
//!
//! It plans what the agent plans, by the same code from the same sources, and writes nothing: the
//! plan hash is that of the NodePlacement (P33).

use std::path::PathBuf;
use std::time::Instant;

use albacore_cluster::{Gates, Metrics, Shutdown};
use albacore_os::HostRoot;
use albacore_placer::{Config, Placer, Row, SubjectConfig, SubjectId};
use albacore_plan::Enforcement;
use anyhow::Context as _;
use serde_json::{Value, json};

use crate::args::Common;
use crate::facts::plan_hash;
use crate::limits::{DUMP_TIME_MAX, LIST_TIME_MAX, TABLE_PAUSE};
use crate::locate::locate;
use crate::program::connect;
use crate::view::{View, bell};
use crate::wish::{Aim, Wish};

/// A procfs under another name than the one that system calls mean: a placer on it never writes.
const PROC_TO_LOOK_AT: &str = "/proc/self/..";

/// Prints the threads of all pods, or of one.
pub(crate) async fn run(common: &Common, node: &str, pod: Option<&str>) -> anyhow::Result<()> {
    let wishes = wishes(common, node).await?;
    if let Some(name) = pod
        && !wishes.iter().any(|wish| wish.pod.key.to_string() == name)
    {
        anyhow::bail!(
            "{name} is no pod of node {node} with the label albacore.dev/deployment: write \
             NAMESPACE/NAME"
        );
    }
    let told = look(common, &wishes)?;
    let shown = told
        .into_iter()
        .filter(|entry| pod.is_none_or(|pod| entry["pod"] == pod));
    let list = Value::Array(shown.collect());
    println!("{list:#}");
    Ok(())
}

/// What the API server wishes for this node. Policies are those of enforcement: what is planned
/// does not depend on it.
pub(crate) async fn wishes(common: &Common, node: &str) -> anyhow::Result<Vec<Wish>> {
    let shutdown = Shutdown::new();
    let cluster = connect(common, &Metrics::new()).await?;
    let (bell, _ears) = bell();
    let view = View::start(&cluster, node, &Gates::default(), &shutdown, &bell);
    let is_synced = view.synced_within(LIST_TIME_MAX).await;
    let seconds = LIST_TIME_MAX.as_secs();
    anyhow::ensure!(is_synced, "the API server told nothing for {seconds} s");
    Ok(view.wishes(Enforcement::Enforce))
}

fn look(common: &Common, wishes: &[Wish]) -> anyhow::Result<Vec<Value>> {
    let mut host = common.host();
    if host.is_live() {
        host.proc = PathBuf::from(PROC_TO_LOOK_AT);
    }
    let config = Config {
        host: host.clone(),
        limit: None,
    };
    let mut placer = Placer::new(config).context("the machine cannot be read")?;
    let topology = placer.machine().hash64();
    let mut subjects: Vec<(&Wish, Result<SubjectId, String>)> = Vec::new();
    for wish in wishes {
        subjects.push((wish, add(&mut placer, &host, wish)));
    }
    let start = Instant::now();
    let mut last: Vec<Row> = Vec::new();
    // bound: DUMP_TIME_MAX; ends as soon as two looks agree.
    while start.elapsed() < DUMP_TIME_MAX {
        placer.step(TABLE_PAUSE, &mut |_| {})?;
        let rows: Vec<Row> = placer
            .table()?
            .into_iter()
            .map(|row| Row {
                verified_micros_ago: None,
                ..row
            })
            .collect();
        let is_planned = rows.iter().any(|row| row.planned.is_some());
        if rows == last && (is_planned || start.elapsed() > TABLE_PAUSE * 4) {
            break;
        }
        last = rows;
    }
    let entries = subjects.into_iter().map(|(wish, subject)| match subject {
        Ok(id) => {
            let own: Vec<Row> = last.iter().filter(|r| r.subject == id).cloned().collect();
            entry(wish, &own, topology)
        }
        Err(reason) => json!({"pod": wish.pod.key.to_string(), "reason": reason, "threads": []}),
    });
    Ok(entries.collect())
}

fn add(placer: &mut Placer, host: &HostRoot, wish: &Wish) -> Result<SubjectId, String> {
    let (container, source, policy) = match &wish.aim {
        Aim::Place {
            container,
            source,
            policy,
            ..
        } => (container, source, policy),
        Aim::Keep { reason } | Aim::Leave { reason } => return Err(reason.clone()),
    };
    let located = locate(host, &wish.pod.uid, container).map_err(|a| a.text().to_owned())?;
    let config = SubjectConfig {
        root: located.root,
        source: *source,
        policy: albacore_plan::Policy {
            enforcement: Enforcement::Enforce,
            ..policy.clone()
        },
        cgroup: Some(located.cgroup),
    };
    placer.add_subject(&config).map_err(|e| e.to_string())
}

fn entry(wish: &Wish, rows: &[Row], topology: u64) -> Value {
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
    json!({
        "pod": wish.pod.key.to_string(),
        "uid": wish.pod.uid,
        "deployment": wish.pod.deployment,
        "plan": plan_hash(rows, topology).map(|plan| format!("{plan:08x}")),
        "topology": format!("{topology:016x}"),
        "threads": threads,
    })
}
