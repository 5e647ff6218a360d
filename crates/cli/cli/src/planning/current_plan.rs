//! `--current FILE`: the plan in force, read from the output of `albacore plan --output json`.
//!
//! The file is untrusted, so every field is validated, and errors name the field. A CPU that no
//! longer exists is not an error: its thread has to move.

use std::collections::BTreeMap;
use std::path::Path;

use albacore_solver::{Mapping, Rank, Slot, WorkerIndex};
use albacore_topology::{CpuId, CpuSet};
use serde_json::Value;

use super::read_option_file;
use crate::limits::PLAN_BYTES_MAX;
use albacore_command::Failure;

/// The advice for a file that is not a plan.
const REMEDY: &str = "give the JSON that `albacore plan --output json` printed";

/// Reads the mapping of one deployment: `assignments`, alone or in a plan of one deployment.
pub(super) fn read_single(path: &Path, (workers, threads): (u16, u16)) -> Result<Mapping, Failure> {
    let value = read(path)?;
    if value.get("deployments").is_some() {
        let what = "deployments: this is a plan of several deployments; give their files with -f";
        return Err(refused(path, what));
    }
    for (field, requested) in [("workers", workers), ("threads", threads)] {
        let Some(there) = value.get(field) else {
            continue;
        };
        if there.as_u64() != Some(requested.into()) {
            let what = format!(
                "{field} is {there}, but --{field} is {requested}: give the plan of the same workers and threads"
            );
            return Err(refused(path, &what));
        }
    }
    let assignments = if value.is_array() {
        Some(&value)
    } else {
        value.get("assignments")
    };
    let mapping = assignments_of(path, "assignments", assignments)?;
    if (mapping.cpus.len(), mapping.threads)
        != (usize::from(workers) * usize::from(threads), threads)
    {
        let there = mapping.cpus.len() / usize::from(mapping.threads);
        let what = format!(
            "assignments are of {there} workers x {} threads, but --workers is {workers} and --threads is \
             {threads}: give the plan of the same workers and threads",
            mapping.threads
        );
        return Err(refused(path, &what));
    }
    Ok(mapping)
}

/// Reads the mappings of a plan of several deployments, by name.
pub(super) fn read_joint(path: &Path) -> Result<BTreeMap<String, Mapping>, Failure> {
    let value = read(path)?;
    let Some(list) = value.get("deployments").and_then(Value::as_array) else {
        let what = format!(
            "deployments is missing or not a list: with -f, {REMEDY} for the same -f files"
        );
        return Err(refused(path, &what));
    };
    let mut mappings = BTreeMap::new();
    for (index, deployment) in list.iter().enumerate() {
        let field = format!("deployments[{index}]");
        let Some(name) = deployment.get("name").and_then(Value::as_str) else {
            return Err(refused(
                path,
                &format!("{field}.name is missing or not a string: {REMEDY}"),
            ));
        };
        let assignments = deployment.get("assignments");
        let mapping = assignments_of(path, &format!("{field}.assignments"), assignments)?;
        if mappings.insert(name.to_owned(), mapping).is_some() {
            let what = format!("{field}.name is \"{name}\", which is a duplicate: {REMEDY}");
            return Err(refused(path, &what));
        }
    }
    Ok(mappings)
}

fn refused(path: &Path, what: &str) -> Failure {
    Failure::Usage(format!("--current {}: {what}", path.display()))
}

fn read(path: &Path) -> Result<Value, Failure> {
    let text = read_option_file("--current", path, PLAN_BYTES_MAX, REMEDY)?;
    serde_json::from_str(&text)
        .map_err(|e| refused(path, &format!("is not valid JSON: {e}; {REMEDY}")))
}

/// Converts a list of assignments to a mapping, in which every thread of W x T occurs exactly once.
fn assignments_of(path: &Path, field: &str, list: Option<&Value>) -> Result<Mapping, Failure> {
    let Some(list) = list
        .and_then(Value::as_array)
        .filter(|list| !list.is_empty())
    else {
        let what = format!("{field} is missing, empty or not a list: {REMEDY}");
        return Err(refused(path, &what));
    };
    let mut cpus: BTreeMap<Slot, CpuId> = BTreeMap::new();
    for (index, entry) in list.iter().enumerate() {
        let number = |name: &str, most: u16| {
            let value = entry.get(name);
            let number = value.and_then(Value::as_u64);
            let number = number.and_then(|number| u16::try_from(number).ok());
            number.filter(|&number| number <= most).ok_or_else(|| {
                let there = value.map_or_else(|| "missing".to_owned(), Value::to_string);
                let what = format!(
                    "{field}[{index}].{name} is {there}, not a number from 0 to {most}: {REMEDY}"
                );
                refused(path, &what)
            })
        };
        let slot = Slot {
            worker: WorkerIndex(number("worker", u16::MAX)?),
            rank: Rank(number("rank", u16::MAX)?),
        };
        let cpu = CpuId(number("cpu", CpuSet::MAX_ID)?);
        if cpus.insert(slot, cpu).is_some() {
            let thread = format!("{}.{}", slot.worker.0, slot.rank.0);
            let what = format!("{field}[{index}] places thread {thread} a second time: {REMEDY}");
            return Err(refused(path, &what));
        }
    }
    // Slots are sorted by worker and rank, so they are complete if they are consecutive.
    let last = cpus.keys().map(|slot| slot.rank.0).max().unwrap_or(0);
    let threads = usize::from(last) + 1;
    for (index, slot) in cpus.keys().enumerate() {
        let (worker, rank) = (index / threads, index % threads);
        if (usize::from(slot.worker.0), usize::from(slot.rank.0)) != (worker, rank) {
            let what = format!("{field} has no thread {worker}.{rank}: {REMEDY}");
            return Err(refused(path, &what));
        }
    }
    if !cpus.len().is_multiple_of(threads) {
        let (worker, rank) = (cpus.len() / threads, cpus.len() % threads);
        let what = format!("{field} has no thread {worker}.{rank}: {REMEDY}");
        return Err(refused(path, &what));
    }
    let threads = last.saturating_add(1);
    Ok(Mapping {
        threads,
        cpus: cpus.into_values().collect(),
    })
}
