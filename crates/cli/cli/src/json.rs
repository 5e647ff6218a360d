//! JSON output of `albacore topology` and `albacore plan`. It is a stable interface: fields are
//! printed in the order of this file.

mod explanation;
mod joint;

use albacore_solver::{Mapping, Move, Relaxation};
use albacore_topology::{CAPACITY_MAX, Cpu, Topology};
use serde_json::{Value, json};

use crate::args::mode_name;
use crate::planning::SinglePlan;

pub(crate) use joint::joint;

/// A plan; the last fields are present if requested on the command line.
pub(crate) fn plan(plan: &SinglePlan) -> Value {
    let certificate = &plan.solution.certificate;
    let mut json = json!({
        "workers": plan.problem.workers,
        "threads": plan.problem.threads,
        "mode": mode_name(plan.problem.mode),
        "policy": plan.policy.name(),
        "objective": certificate.objective,
        "bound": certificate.bound,
        "optimal": certificate.optimal,
        "solve_micros": plan.solve_micros,
        "relaxed": list(&certificate.relaxed, relaxed),
        "cpus": list(plan.problem.topology.cpus(), cpu),
        "assignments": assignments(&plan.solution.mapping),
        "proof": certificate.proof.name(),
        "distances": plan.distances.cycles,
    });
    if let Some(change) = &plan.change {
        // Null if the plan in force contains CPUs that no longer exist.
        json["gained"] = change.gained.into();
        json["moved"] = change.moves.len().into();
        json["moves"] = list(&change.moves, one_move);
    }
    if let Some(explanation) = explanation::of(plan) {
        json["explanation"] = explanation;
    }
    json
}

/// A machine.
pub(crate) fn topology(machine: &Topology) -> Value {
    let count = |field: fn(&Cpu) -> u32| {
        let numbers: std::collections::BTreeSet<u32> = machine.cpus().iter().map(field).collect();
        numbers.len()
    };
    json!({
        "cpu_count": machine.cpus().len(),
        "core_count": count(|c| c.core),
        "l2_count": count(|c| c.l2),
        "l3_count": count(|c| c.l3),
        "numa_count": count(|c| c.numa),
        "package_count": count(|c| c.package),
        "cpus": list(machine.cpus(), cpu_with_kind),
    })
}

fn list<T>(items: &[T], json: fn(&T) -> Value) -> Value {
    items.iter().map(json).collect()
}

fn relaxed(relaxation: &Relaxation) -> Value {
    json!({"rule": relaxation.rule, "amount": relaxation.amount})
}

fn cpu(cpu: &Cpu) -> Value {
    json!({
        "cpu": cpu.id.0,
        "core": cpu.core,
        "l2": cpu.l2,
        "l3": cpu.l3,
        "numa": cpu.numa,
        "package": cpu.package,
        "capacity": cpu.capacity,
    })
}

fn cpu_with_kind(of: &Cpu) -> Value {
    let mut json = cpu(of);
    json["kind"] = match of.capacity {
        CAPACITY_MAX => "performance",
        _ => "efficiency",
    }
    .into();
    json
}

fn assignments(mapping: &Mapping) -> Value {
    let assignments = mapping
        .iter()
        .map(|(slot, cpu)| json!({"worker": slot.worker.0, "rank": slot.rank.0, "cpu": cpu.0}));
    assignments.collect()
}

fn one_move(&Move { slot, from, to }: &Move) -> Value {
    json!({"worker": slot.worker.0, "rank": slot.rank.0, "from": from.0, "to": to.0})
}
