//! JSON output of `albacore topology` and `albacore plan`. It is a contract: these types define it,
//! and the order of their fields is the order printed.

mod explanation;
mod joint;

use albacore_explain::Move;
use albacore_mapping::{Mapping, Relaxation};
use albacore_topology::{CoreKind, Cpu, Topology};
use serde::Serialize;

use crate::args::mode_name;
use crate::planning::SinglePlan;
use albacore_command::Failure;
use explanation::ExplanationJson;

pub(crate) use joint::joint;

/// The optional fields are present if the command line asks for them.
#[derive(Serialize)]
struct PlanJson {
    workers: u16,
    threads: u16,
    mode: &'static str,
    policy: &'static str,
    objective: i64,
    bound: i64,
    optimal: bool,
    solve_micros: u64,
    relaxed: Vec<RelaxedJson>,
    cpus: Vec<CpuJson>,
    assignments: Vec<AssignmentJson>,
    proof: &'static str,
    #[serde(flatten)]
    change: Option<ChangeJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<ExplanationJson>,
}

/// The difference from the plan in force; `gained` is null if that has cpus that are gone.
#[derive(Serialize)]
struct ChangeJson {
    gained: Option<i64>,
    moved: usize,
    moves: Vec<MoveJson>,
}

#[derive(Serialize)]
struct MoveJson {
    worker: u16,
    rank: u16,
    from: u16,
    to: u16,
}

#[derive(Serialize)]
struct RelaxedJson {
    rule: &'static str,
    amount: u32,
}

#[derive(Serialize)]
struct CpuJson {
    cpu: u16,
    core: u32,
    l2: u32,
    l3: u32,
    numa: u32,
    package: u32,
}

#[derive(Serialize)]
struct AssignmentJson {
    worker: u16,
    rank: u16,
    cpu: u16,
}

#[derive(Serialize)]
struct TopologyJson {
    cpu_count: usize,
    core_count: usize,
    l2_count: usize,
    l3_count: usize,
    numa_count: usize,
    package_count: usize,
    cpus: Vec<KindOfCpuJson>,
}

#[derive(Serialize)]
struct KindOfCpuJson {
    #[serde(flatten)]
    cpu: CpuJson,
    kind: &'static str,
}

/// A plan as one line of JSON.
pub(crate) fn plan(plan: &SinglePlan) -> Result<String, Failure> {
    let certificate = &plan.solution.certificate;
    line(&PlanJson {
        workers: plan.problem.workers,
        threads: plan.problem.threads,
        mode: mode_name(plan.problem.mode),
        policy: plan.policy.name(),
        objective: certificate.objective,
        bound: certificate.bound,
        optimal: certificate.optimal,
        solve_micros: plan.solve_micros,
        relaxed: certificate.relaxed.iter().map(relaxed).collect(),
        cpus: plan.problem.topology.cpus().iter().map(cpu).collect(),
        assignments: assignments(&plan.solution.mapping),
        proof: certificate.proof.name(),
        change: plan.change.as_ref().map(|change| ChangeJson {
            gained: change.gained,
            moved: change.moves.len(),
            moves: change.moves.iter().map(one_move).collect(),
        }),
        explanation: explanation::of(plan),
    })
}

/// A machine as one line of JSON.
pub(crate) fn topology(machine: &Topology) -> Result<String, Failure> {
    let count = |field: fn(&Cpu) -> u32| {
        let numbers: std::collections::BTreeSet<u32> = machine.cpus().iter().map(field).collect();
        numbers.len()
    };
    line(&TopologyJson {
        cpu_count: machine.cpus().len(),
        core_count: count(|c| c.core),
        l2_count: count(|c| c.l2),
        l3_count: count(|c| c.l3),
        numa_count: count(|c| c.numa),
        package_count: count(|c| c.package),
        cpus: machine.cpus().iter().map(kind_of_cpu).collect(),
    })
}

fn relaxed(relaxation: &Relaxation) -> RelaxedJson {
    let Relaxation { rule, amount } = relaxation;
    RelaxedJson {
        rule,
        amount: *amount,
    }
}

fn cpu(cpu: &Cpu) -> CpuJson {
    let &Cpu {
        id,
        core,
        l2,
        l3,
        numa,
        package,
        kind: _,
    } = cpu;
    CpuJson {
        cpu: id.0,
        core,
        l2,
        l3,
        numa,
        package,
    }
}

fn kind_of_cpu(of: &Cpu) -> KindOfCpuJson {
    let kind = match of.kind {
        CoreKind::Performance => "performance",
        CoreKind::Efficiency => "efficiency",
    };
    KindOfCpuJson { cpu: cpu(of), kind }
}

fn assignments(mapping: &Mapping) -> Vec<AssignmentJson> {
    let assignments = mapping.iter().map(|(slot, cpu)| AssignmentJson {
        worker: slot.worker.0,
        rank: slot.rank.0,
        cpu: cpu.0,
    });
    assignments.collect()
}

fn one_move(&Move { slot, from, to }: &Move) -> MoveJson {
    MoveJson {
        worker: slot.worker.0,
        rank: slot.rank.0,
        from: from.0,
        to: to.0,
    }
}

fn line(value: &impl Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string(value);
    json.map(|json| json + "\n")
        .map_err(|e| Failure::Broken(format!("cannot print JSON: {e}")))
}
