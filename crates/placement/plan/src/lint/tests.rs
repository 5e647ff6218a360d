//! The planner and the lint find the same workers in random process trees, and a plan with a wrong
//! role is rejected.

use albacore_solver::{Mode, Rank, WorkBudget, solve};
use albacore_topology::{DistanceOverrides, parse_synthetic};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::plan::plan_with_roles;
use crate::{
    Enforcement, MainThread, Micros, PlacementMethod, Role, Roles, ServerKind, find_roles, problem,
    thread_name,
};

const AT: Micros = Micros(100_000_000);
const COMMANDS: [&str; 6] = ["sh", "gunicorn 1", "gunicorn 2", "worker 17", "tracker", ""];

/// A process with one thread.
#[derive(Clone, Debug)]
struct SmallProcess {
    /// Its parent, as an index into the preceding processes.
    parent: usize,
    command: &'static str,
    age_micros: u64,
    start_ticks: u64,
    /// The slot after which its thread is named.
    slot: Option<Slot>,
}

impl SmallProcess {
    fn new(command: &'static str, parent: usize) -> Self {
        Self {
            parent,
            command,
            age_micros: 60_000_000,
            start_ticks: 1,
            slot: None,
        }
    }
}

fn slot(worker: u16, rank: u16) -> Slot {
    Slot {
        worker: WorkerIndex(worker),
        rank: Rank(rank),
    }
}

fn random_process() -> impl Strategy<Value = SmallProcess> {
    (
        0..14usize,
        prop::sample::select(&COMMANDS[..]),
        prop::sample::select(&[0u64, 50_000, 200_000, 60_000_000][..]),
        0..20u64,
        prop::option::weighted(0.3, (0..4u16, 0..3u16)),
    )
        .prop_map(
            |(parent, command, age_micros, start_ticks, named)| SmallProcess {
                parent,
                command,
                age_micros,
                start_ticks,
                slot: named.map(|(worker, rank)| slot(worker, rank)),
            },
        )
}

/// An observation of these processes, parents before children.
fn tree(server_kind: ServerKind, processes: &[SmallProcess]) -> Observation {
    let machine = parse_synthetic("pack:1 l3:1 core:8 pu:1").unwrap();
    let cpuset = machine.cpuset();
    let pid = |index: usize| Pid(100 + index as i32);
    let process = |(index, small): (usize, &SmallProcess)| {
        let thread = ObservedThread {
            id: ThreadId {
                start_ticks: small.start_ticks,
                tid: pid(index).first_thread(),
            },
            comm: small.slot.map_or("server".into(), thread_name),
            mask: cpuset.clone(),
            cpu_ticks: 0,
        };
        Process {
            id: ProcessId {
                start_ticks: small.start_ticks,
                pid: pid(index),
            },
            not_before: Micros(AT.0 - small.age_micros),
            parent: match index {
                0 => Pid(1),
                _ => pid(small.parent % index),
            },
            cmdline: small.command.into(),
            threads: vec![thread],
        }
    };
    Observation {
        at: AT,
        cpuset: cpuset.clone(),
        cpuset_changes: 0,
        server_kind,
        processes: processes.iter().enumerate().map(process).collect(),
        machine,
    }
}

/// A history in which a process of the tree is the arbiter of workers with a command.
fn history(observation: &Observation, arbiter: Option<Index>, command: &str) -> PlanHistory {
    let known = arbiter.map(|index| index.get(&observation.processes).id);
    PlanHistory {
        arbiter: known,
        command_pattern: known.map(|_| command.replace(|c: char| c.is_ascii_digit(), "")),
        ..PlanHistory::default()
    }
}

fn policy(workers: u16) -> SubjectPolicy {
    SubjectPolicy {
        workers,
        threads: 1,
        mode: Mode::Scatter,
        placement: PlacementMethod::Tuna,
        enforcement: Enforcement::Enforce,
        main_thread: MainThread::Pinned,
        distances: DistanceOverrides::default(),
        is_pool_size_known: true,
    }
}

fn server_kind(is_named: bool) -> ServerKind {
    if is_named {
        ServerKind::Named
    } else {
        ServerKind::PreFork
    }
}

/// Plans with these roles.
fn plan_by(
    observation: &Observation,
    policy: &SubjectPolicy,
    history: &PlanHistory,
    roles: &Roles,
) -> Plan<Proposed> {
    let problem = problem(policy, observation, None).unwrap();
    let solution = solve(&problem, &mut WorkBudget::of_steps(0)).unwrap();
    let mapping = Some(&solution.mapping);
    plan_with_roles(policy, observation, mapping, history, roles)
}

fn input<'a>(
    observation: &'a Observation,
    policy: &'a SubjectPolicy,
    history: &'a PlanHistory,
) -> LintInput<'a> {
    LintInput {
        policy,
        observation,
        history,
        solved: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn planner_and_lint_agree_on_random_process_trees(
        processes in prop::collection::vec(random_process(), 1..14),
        is_named in any::<bool>(),
        requested in 1..5u16,
        arbiter in prop::option::of(any::<Index>()),
        command in prop::sample::select(&COMMANDS[..]),
    ) {
        let observation = tree(server_kind(is_named), &processes);
        let (policy, history) = (policy(requested), history(&observation, arbiter, command));
        let roles = find_roles(&observation, requested, &history);
        let planned: BTreeSet<ProcessId> = observation
            .processes
            .iter()
            .filter(|process| roles.of(process) == Role::Worker)
            .map(|process| process.id)
            .collect();
        prop_assert_eq!(workers::find(&observation, requested, &history), planned);
        let proposed = plan_by(&observation, &policy, &history, &roles);
        let linted = lint(proposed, &input(&observation, &policy, &history));
        prop_assert!(linted.is_ok(), "{:?}", linted.err());
    }

    #[test]
    fn a_planner_with_a_wrong_role_is_refused(
        processes in prop::collection::vec(random_process(), 1..10),
        is_named in any::<bool>(),
        wrong in any::<Index>(),
    ) {
        let observation = tree(server_kind(is_named), &processes);
        let (policy, history) = (policy(10), PlanHistory::default());
        let mut roles = find_roles(&observation, policy.workers, &history);
        let process = wrong.get(&observation.processes);
        let was_worker = roles.of(process) == Role::Worker;
        roles.set(process, if was_worker { Role::Helper } else { Role::Worker });
        let proposed = plan_by(&observation, &policy, &history, &roles);
        let mut pins = proposed.steps.iter().filter(|step| step.kind == StepKind::Pin);
        let is_pinned = pins.any(|step| step.process == process.id);
        let error = lint(proposed, &input(&observation, &policy, &history)).err();
        let pid = process.id.pid;
        if was_worker {
            // A process whose name claims an index may be omitted.
            prop_assume!(!has_slot_name(process));
            prop_assert_eq!(error, Some(LintError::MissingWorker { pid }));
        } else {
            // A process whose name claims the index of an older one is not placed.
            prop_assume!(is_pinned);
            prop_assert_eq!(error, Some(LintError::NotAWorker { pid }));
        }
    }
}

#[test]
fn a_pinned_arbiter_is_refused() {
    let processes = [
        SmallProcess::new("gunicorn 1", 0),
        SmallProcess::new("gunicorn 2", 0),
    ];
    let observation = tree(ServerKind::PreFork, &processes);
    let (policy, history) = (policy(2), PlanHistory::default());
    let mut roles = find_roles(&observation, 2, &history);
    let arbiter = &observation.processes[0];
    assert_eq!(roles.of(arbiter), Role::Arbiter);
    roles.set(arbiter, Role::Worker);
    let proposed = plan_by(&observation, &policy, &history, &roles);
    let error = lint(proposed, &input(&observation, &policy, &history)).err();
    let pid = arbiter.id.pid;
    assert_eq!(error, Some(LintError::NotAWorker { pid }));
}

#[test]
fn a_first_thread_in_another_rank_and_a_slot_beyond_the_policy_are_refused() {
    let observation = tree(ServerKind::PreFork, &[SmallProcess::new("server", 0)]);
    let (policy, history) = (policy(1), PlanHistory::default());
    let roles = find_roles(&observation, 1, &history);
    let proposed = plan_by(&observation, &policy, &history, &roles);
    let input = input(&observation, &policy, &history);
    assert_eq!(proposed.steps.len(), 1);
    assert!(lint(proposed.clone(), &input).is_ok());
    for slot in [slot(0, 1), slot(1, 0)] {
        let mut wrong = proposed.clone();
        wrong.steps[0].slot = Some(slot);
        let tid = wrong.steps[0].thread.tid;
        let error = lint(wrong, &input).err();
        assert_eq!(error, Some(LintError::WrongSlot { tid, slot }));
    }
}
