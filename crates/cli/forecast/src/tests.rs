//! From the placer's view of a node, through the texts of its report, to the plans of a new pod and
//! of an edited one: these equal the plans of the placer.

use std::collections::BTreeSet;

use albacore_api::{NodePlacement, policy_of};
use albacore_placer::{NodeProblem, PlaceableServer, is_joint, place_joint};
use albacore_plan::{PlacementMethod, SubjectPolicy, mapping_text};
use albacore_solver::{Mapping, Mode};
use albacore_topology::{
    CpuId, CpuSet, Topology, encode_run_length, parse_synthetic, topology_text,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::edited_pods::{Edit, diff_on};
use crate::new_pod::plan_on;
use crate::node_view::NodeView;
use crate::place::place;
use crate::pod_requirements::PodRequirements;
use crate::report::{PodDiff, ThreadAssignment};

const NOW: &str = "2026-11-21T20:00:00Z";

fn requirements(spec: &Value) -> PodRequirements {
    let object = json!({"apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud"}, "spec": spec});
    PodRequirements::of(&albacore_api::read_deployment(&object.to_string(), "f").unwrap())
}

fn spec(workers: u16, threads: u16, mode: &str, placement: &str) -> Value {
    json!({"workers": workers, "threads": threads, "mode": mode,
        "placement": {"policy": placement}, "models": [{"name": "m", "uri": "pvc://a/m.ubj"}]})
}

/// The report of a node with these pods, named `a/p0`, `a/p1`...
fn report(machine: &Topology, servers: &[PlaceableServer], fixed: &[CpuId]) -> NodePlacement {
    let pods = servers.iter().enumerate().map(|(at, server)| {
        let mode = match server.policy.mode {
            Mode::Scatter => "Scatter",
            Mode::Compact => "Compact",
        };
        let mapping = mapping_text(server.current.as_ref().unwrap());
        json!({"pod": format!("a/p{at}"), "workers": 1, "workersVerified": 1, "planned": 1,
            "verified": 1, "plan": "0", "cpuset": server.cpuset.to_string(), "isolation": "None",
            "mapping": {"cpus": mapping, "mode": mode, "order": at}})
    });
    let fixed: Vec<u32> = fixed.iter().map(|cpu| cpu.0.into()).collect();
    let object = json!({"metadata": {"name": "n"}, "status": {
        "lastVerificationTime": NOW, "cpuTopology": topology_text(machine),
        "fixedThreads": (!fixed.is_empty()).then(|| encode_run_length(&fixed)),
        "pods": pods.rev().collect::<Vec<_>>()}});
    serde_json::from_value(object).unwrap()
}

/// Adds servers one after another, as pods start on a node; each has the plan in force at the end.
fn settled(
    machine: &Topology,
    shapes: &[(u16, u16, Mode)],
    fixed: &[CpuId],
) -> Vec<PlaceableServer> {
    let mut servers: Vec<PlaceableServer> = Vec::new();
    for &(workers, threads, mode) in shapes {
        servers.push(PlaceableServer {
            policy: policy(workers, threads, mode),
            cpuset: machine.cpuset(),
            current: None,
            is_warm: true,
        });
        let mappings = place(&problem(machine, servers.clone(), fixed))
            .unwrap()
            .mappings;
        for (server, mapping) in servers.iter_mut().zip(mappings) {
            server.current = Some(mapping);
        }
    }
    servers
}

fn policy(workers: u16, threads: u16, mode: Mode) -> SubjectPolicy {
    let name = if mode == Mode::Scatter {
        "Scatter"
    } else {
        "Compact"
    };
    requirements(&spec(workers, threads, name, "Tuna")).policy
}

fn problem<'a>(
    machine: &'a Topology,
    servers: Vec<PlaceableServer>,
    fixed: &[CpuId],
) -> NodeProblem<'a> {
    NodeProblem {
        machine,
        containers: servers.iter().map(|server| server.cpuset.clone()).collect(),
        known: servers
            .iter()
            .fold(CpuSet::new(), |all, m| all.union(&m.cpuset)),
        servers,
        obstacle_cpus: fixed.to_vec(),
    }
}

fn view(report: &NodePlacement) -> NodeView {
    NodeView::of(report, NOW.parse().unwrap()).unwrap()
}

fn shapes() -> impl Strategy<Value = Vec<(u16, u16, Mode)>> {
    let mode = prop_oneof![Just(Mode::Scatter), Just(Mode::Compact)];
    proptest::collection::vec((1..4_u16, 1..4_u16, mode), 1..4)
}

fn machines() -> impl Strategy<Value = Topology> {
    let texts = [
        "pack:1 l3:2 core:4 pu:2",
        "pack:2 [numa] l3:1 core:4 pu:1",
        "core:3 pu:1",
    ];
    proptest::sample::select(texts.to_vec()).prop_map(|text| parse_synthetic(text).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_new_pod_is_planned_as_the_placer_does(
        machine in machines(),
        mut shapes in shapes(),
        is_crowded: bool,
    ) {
        let fixed = if is_crowded { vec![CpuId(1), CpuId(1)] } else { Vec::new() };
        let (workers, threads, mode) = shapes.pop().unwrap();
        let running = settled(&machine, &shapes, &fixed);
        let name = if mode == Mode::Scatter { "Scatter" } else { "Compact" };
        let new = requirements(&spec(workers, threads, name, "Tuna"));
        let report = report(&machine, &running, &fixed);
        let own: BTreeSet<String> = ["a/p0".to_owned()].into();
        let plan = plan_on(&view(&report), &new, Some(&own)).unwrap();
        let new_plan = plan.plan.unwrap();

        let mut servers = running.clone();
        let (policy, cpuset) = (new.policy, machine.cpuset());
        servers.push(PlaceableServer { policy, cpuset, current: None, is_warm: false });
        let node = problem(&machine, servers, &fixed);
        let placed = place(&node).unwrap();
        let (own_mapping, others) = placed.mappings.split_last().unwrap();
        prop_assert_eq!(new_plan.assignments, ThreadAssignment::all(own_mapping));
        let joint = node.joint();
        if is_joint(&joint) {
            let solved = place_joint(&joint, &node.cold_deployments()).unwrap();
            prop_assert_eq!(new_plan.certificate.objective, solved.certificate.objective);
            prop_assert_eq!(&placed.mappings, &solved.mappings);
        }
        for (at, (server, after)) in running.iter().zip(others).enumerate() {
            let name = format!("a/p{at}");
            let reported = new_plan.moves.iter().find(|pod| pod.pod == name).map(|pod| &pod.moves[..]);
            let moves = PodDiff::between(server.current.as_ref(), Some(after)).moves;
            prop_assert_eq!(reported.unwrap_or_default(), &moves[..]);
        }
        prop_assert_eq!(plan.now.len(), running.len());
    }

    #[test]
    fn an_edit_of_the_mode_moves_the_threads_that_the_placer_moves(
        machine in machines(), shapes in shapes(),
    ) {
        let running = settled(&machine, &shapes, &[]);
        let report = report(&machine, &running, &[]);
        let (workers, threads, mode) = shapes[0];
        let other = if mode == Mode::Scatter { Mode::Compact } else { Mode::Scatter };
        let name = if other == Mode::Scatter { "Scatter" } else { "Compact" };
        let after = requirements(&spec(workers, threads, name, "Tuna"));
        let own: BTreeSet<String> = ["a/p0".to_owned()].into();
        let edit = |is_replanned| Edit { after: after.clone(), restarts: false, is_replanned };
        let still = diff_on(&view(&report), &edit(false), &own).unwrap();
        prop_assert!(still.pods.iter().all(PodDiff::is_empty));

        let diff = diff_on(&view(&report), &edit(true), &own).unwrap();
        let mut servers = running.clone();
        servers[0].policy.mode = other;
        let placed = place(&problem(&machine, servers, &[])).unwrap();
        prop_assert_eq!(diff.after.unwrap().objective, placed.certificate.unwrap().objective);
        for (at, (server, after)) in running.iter().zip(&placed.mappings).enumerate() {
            let pod = diff.pods.iter().find(|pod| pod.pod == format!("a/p{at}")).unwrap();
            let expected = PodDiff::between(server.current.as_ref(), Some(after));
            prop_assert_eq!(&pod.moves, &expected.moves);
            prop_assert_eq!((pod.added.len(), pod.removed.len()), (0, 0));
        }
    }
}

/// Eight CPUs with one pod on the first two.
fn one_pod() -> NodePlacement {
    let machine = parse_synthetic("l3:1 core:8 pu:1").unwrap();
    let mapping = Mapping {
        threads: 2,
        cpus: vec![CpuId(0), CpuId(1)],
    };
    let server = PlaceableServer {
        policy: policy(1, 2, Mode::Scatter),
        cpuset: machine.cpuset(),
        current: Some(mapping),
        is_warm: true,
    };
    report(&machine, &[server], &[])
}

#[test]
fn the_policies_none_and_round_robin_are_planned_separately() {
    let report = one_pod();
    let kernel = plan_on(
        &view(&report),
        &requirements(&spec(1, 2, "Scatter", "None")),
        None,
    )
    .unwrap();
    assert!(kernel.plan.is_none() && kernel.why.unwrap().contains("the kernel places"));
    let dealt = requirements(&spec(1, 3, "Scatter", "RoundRobin"));
    let plan = plan_on(&view(&report), &dealt, None).unwrap().plan.unwrap();
    let cpus: Vec<u16> = plan.assignments.iter().map(|one| one.cpu).collect();
    assert_eq!(cpus, [0, 1, 2]);
    // The plan moves the threads of the running pod away from two of the new pod's CPUs.
    let moves: Vec<_> = plan.moves.iter().flat_map(|pod| &pod.moves).collect();
    assert!(
        moves.len() == 2 && moves.iter().all(|m| m.to > 2),
        "{moves:?}"
    );
}

#[test]
fn restarted_pods_and_pods_no_longer_placed_are_shown_as_removed_and_added() {
    let report = one_pod();
    let own: BTreeSet<String> = ["a/p0".to_owned()].into();
    let diff = |spec: &Value, restarts| {
        let after = requirements(spec);
        let edit = Edit {
            after,
            restarts,
            is_replanned: true,
        };
        let mut diff = diff_on(&view(&report), &edit, &own).unwrap();
        let pod = diff.pods.remove(0);
        (pod.moves.len(), pod.added.len(), pod.removed.len())
    };
    assert_eq!(diff(&spec(2, 2, "Scatter", "Tuna"), true).1, 2);
    assert_eq!(diff(&spec(1, 1, "Scatter", "Tuna"), true).2, 1);
    assert_eq!(diff(&spec(1, 2, "Scatter", "None"), false), (0, 0, 2));
    let mut observed = spec(1, 2, "Scatter", "Tuna");
    observed["placement"]["enforcement"] = json!("Observe");
    assert_eq!(diff(&observed, false), (0, 0, 2), "masks are given back");
}

#[test]
fn unknown_cpus_are_listed_as_assumptions() {
    let guaranteed = |cpus: &str| {
        let mut spec = spec(1, 2, "Scatter", "Tuna");
        spec["resources"] = json!({"limits": {"cpu": cpus, "memory": "1Gi"}});
        requirements(&spec)
    };
    let mut report = one_pod();
    let shared = plan_on(&view(&report), &guaranteed("2"), None).unwrap();
    assert!(shared.plan.is_some() && shared.assumptions[0].contains("2 whole cpus"));
    let large = plan_on(&view(&report), &guaranteed("9"), None).unwrap();
    assert!(large.plan.is_none() && large.why.unwrap().contains("requests 9, the node has 8"));

    let pod = &mut report.status.as_mut().unwrap().pods[0];
    (pod.isolation, pod.cpuset) = (albacore_api::Isolation::Exclusive, Some("0-1".to_owned()));
    let beside = plan_on(&view(&report), &guaranteed("2"), None).unwrap();
    assert_eq!(beside.plan.unwrap().cpuset, "2-7");
    let all = beside.assumptions.join("\n");
    assert!(all.contains("no pod in the report shows") && all.contains("this node's kubelet does"));
}

#[test]
fn only_rules_of_placement_plan_running_pods_anew() {
    let base = requirements(&spec(1, 2, "Scatter", "Tuna")).policy;
    let other = |change: fn(&mut SubjectPolicy)| {
        let mut other = base.clone();
        change(&mut other);
        Edit::is_replanned(&base, &other)
    };
    assert!(!other(|_| {}));
    assert!(other(|policy| policy.mode = Mode::Compact));
    assert!(other(
        |policy| policy.placement = PlacementMethod::RoundRobin
    ));
    assert!(other(|policy| policy.distances.l3 = Some(60)));
    let spec: albacore_api::InferenceDeploymentSpec =
        serde_json::from_value(spec(1, 2, "Scatter", "Tuna")).unwrap();
    assert_eq!(policy_of(&spec), base);
}
