//! Properties of plans on a simulated server: stability, repair, scope, and the meaning of each
//! cause.

use albacore_solver::{Mode, Rank, WorkBudget, solve};
use albacore_topology::{DistanceOverrides, Distances, Topology, parse_synthetic};
use proptest::prelude::*;

use super::*;
use crate::limits::{NON_FORKING_AGE_MICROS, SETTLING_MICROS};
use crate::{LintError, LintInput, MainThread, ServerKind, Tid, lint, thread_name};

mod front;

/// A simulated server with named workers that tests modify; masks are those written by the last
/// plan.
#[derive(Clone, Debug)]
struct World {
    policy: SubjectPolicy,
    observation: Observation,
    history: PlanHistory,
    next_id: i32,
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

impl World {
    fn new(workers: u16, threads: u16, server_kind: ServerKind, machine: &str) -> Self {
        let machine: Topology = parse_synthetic(machine).unwrap();
        let policy = SubjectPolicy {
            workers,
            threads,
            mode: Mode::Scatter,
            placement: PlacementMethod::Tuna,
            enforcement: Enforcement::Enforce,
            main_thread: MainThread::Pinned,
            distances: DistanceOverrides::default(),
            is_pool_size_known: true,
        };
        let cpuset = machine.cpuset();
        let at = Micros(10_000_000);
        let observation = Observation {
            at,
            machine,
            cpuset,
            cpuset_changes: 0,
            server_kind,
            processes: Vec::new(),
        };
        let mut world = Self {
            policy,
            observation,
            history: PlanHistory::default(),
            next_id: 100,
        };
        world.born(None, 1, "root");
        for worker in 0..workers {
            world.birth_of_worker(worker);
        }
        world
    }

    fn id(&mut self) -> i32 {
        self.next_id += 1;
        self.next_id
    }

    /// Adds a process with `threads` threads, named if servers of this kind name them; returns its
    /// pid.
    fn born(&mut self, worker: Option<u16>, threads: u16, cmdline: &str) -> Pid {
        let pid = self.id();
        let root = self.observation.processes.first().map_or(0, |p| p.id.pid.0);
        let id = ProcessId {
            start_ticks: pid as u64,
            pid: Pid(pid),
        };
        // Old enough to have forked: a lone child of a wrapper then counts as a worker.
        let at = Micros(self.observation.at.0.saturating_sub(NON_FORKING_AGE_MICROS));
        let cmdline = cmdline.into();
        let parent = Pid(root);
        self.observation.processes.push(Process {
            id,
            not_before: at,
            parent,
            cmdline,
            threads: Vec::new(),
        });
        for rank in 0..threads {
            let tid = if rank == 0 { pid } else { self.id() };
            self.thread(Pid(pid), tid, worker.map(|w| (w, rank)));
        }
        Pid(pid)
    }

    fn thread(&mut self, pid: Pid, tid: i32, slot: Option<(u16, u16)>) -> ThreadId {
        let id = ThreadId {
            start_ticks: tid as u64,
            tid: Tid(tid),
        };
        let name = |(w, r)| {
            thread_name(Slot {
                worker: WorkerIndex(w),
                rank: Rank(r),
            })
        };
        let comm = match self.observation.server_kind {
            ServerKind::Named => slot.map_or("server".into(), name),
            ServerKind::PreFork => "server".into(),
        };
        let mask = self.observation.cpuset.clone();
        let process = self
            .observation
            .processes
            .iter_mut()
            .find(|p| p.id.pid == pid)
            .unwrap();
        process.threads.push(ObservedThread {
            id,
            comm,
            mask,
            cpu_ticks: 0,
        });
        id
    }

    fn birth_of_worker(&mut self, worker: u16) -> Pid {
        let threads = self.policy.threads;
        self.born(Some(worker), threads, "server worker")
    }

    fn kill(&mut self, pid: Pid) {
        self.observation.processes.retain(|p| p.id.pid != pid);
    }

    fn thread_mut(&mut self, id: ThreadId) -> &mut ObservedThread {
        let mut all = self
            .observation
            .processes
            .iter_mut()
            .flat_map(|p| &mut p.threads);
        all.find(|t| t.id == id).unwrap()
    }

    /// Plans and lints without executing.
    fn plan_only(&self) -> Plan<Linted> {
        let problem = problem(&self.policy, &self.observation, None);
        let solved = problem.map(|p| (solve(&p, &mut WorkBudget::unlimited()).unwrap(), p));
        let pair = solved.as_ref().map(|(s, p)| (p, &s.mapping));
        let mapping = pair.map(|(_, m)| m);
        let plan = plan(&self.policy, &self.observation, mapping, &self.history);
        lint(plan, &input(self, pair)).unwrap()
    }

    /// Plans and executes: masks are set as in the steps. Returns the plan for inspection.
    fn run(&mut self) -> Plan<Linted> {
        let mut plan = self.plan_only();
        let executed = plan.clone();
        for step in executed.steps.clone() {
            self.thread_mut(step.thread).mask = step.mask.clone();
            plan.confirm(&step);
        }
        self.history = plan.into_history();
        self.observation.at.0 += 1000;
        executed
    }

    fn in_slot(&self, worker: u16, rank: u16) -> ThreadId {
        let slot = Slot {
            worker: WorkerIndex(worker),
            rank: Rank(rank),
        };
        self.history.thread_at(slot).unwrap()
    }

    fn worker(&self, worker: u16) -> Pid {
        self.history.worker(WorkerIndex(worker)).unwrap().pid
    }

    fn mask(&mut self, id: ThreadId) -> CpuSet {
        self.thread_mut(id).mask.clone()
    }
}

fn named(workers: u16, threads: u16) -> World {
    World::new(
        workers,
        threads,
        ServerKind::Named,
        "pack:1 l3:1 core:4 pu:2",
    )
}

#[test]
fn a_second_plan_of_the_same_world_has_no_steps_and_no_drifts() {
    let mut world = named(2, 4);
    assert_eq!(world.run().steps.len(), 8);
    let again = world.run();
    assert_eq!(
        (again.steps.len(), again.drifts.len(), again.warnings.len()),
        (0, 0, 0)
    );
}

#[test]
fn each_way_to_drift_has_its_cause() {
    let mut world = named(2, 4);
    world.run();
    let thread = world.in_slot(1, 2);
    let planned = world.mask(thread);
    let causes = |plan: &Plan<Linted>| plan.drifts.iter().map(|d| d.cause).collect::<Vec<_>>();
    world.thread_mut(thread).mask = set("0-7");
    assert_eq!(causes(&world.run()), [MaskDriftCause::Foreign]);
    world.thread_mut(thread).mask = set("0-7");
    assert_eq!(
        causes(&world.run()),
        [MaskDriftCause::Foreign],
        "the second time within a minute"
    );
    world.thread_mut(thread).mask = set("0-7");
    world.observation.cpuset_changes += 1;
    assert_eq!(
        causes(&world.run()),
        [MaskDriftCause::CpusetChange],
        "changed and changed back"
    );
    world.thread_mut(thread).mask = CpuSet::new();
    assert_eq!(causes(&world.run()), [MaskDriftCause::Hotplug]);
    assert_eq!(world.mask(thread), planned);
    world.observation.at.0 += SETTLING_MICROS;
    // Two threads of one worker at once: it is unknown whether the worker or `taskset --all-tasks`
    // did it.
    for rank in [0, 3] {
        let thread = world.in_slot(0, rank);
        world.thread_mut(thread).mask = set("0-7");
    }
    assert_eq!(
        causes(&world.run()),
        [MaskDriftCause::Foreign, MaskDriftCause::Foreign]
    );
    let pid = world.worker(0);
    let tid = world.id();
    let extra = world.thread(pid, tid, None);
    assert_eq!(causes(&world.run()), [MaskDriftCause::NewThread]);
    let tid = world.id();
    let inheriting = world.thread(pid, tid, None);
    world.thread_mut(inheriting).mask = planned;
    assert_eq!(causes(&world.run()), [MaskDriftCause::Inherited]);
    assert_eq!(
        world.mask(extra),
        world.mask(inheriting),
        "both have the worker's set"
    );
}

#[test]
fn masks_that_the_kernel_resets_around_a_cpuset_change_are_no_foreign_writes() {
    let mut world = named(1, 2);
    world.run();
    let threads = [world.in_slot(0, 0), world.in_slot(0, 1)];
    let whole = world.observation.cpuset.clone();
    let wiped = |world: &mut World, at: u64| -> Vec<MaskDriftCause> {
        world.observation.at.0 += at;
        for thread in threads {
            world.thread_mut(thread).mask = whole.clone();
        }
        world.run().drifts.iter().map(|d| d.cause).collect()
    };
    // Ten changes, each of which also overwrites the masks pinned for it.
    for _ in 0..10 {
        world.observation.cpuset_changes += 1;
        assert_eq!(wiped(&mut world, 1000), [MaskDriftCause::CpusetChange; 2]);
        assert_eq!(wiped(&mut world, 1000), [MaskDriftCause::CpusetChange; 2]);
    }
    // A narrow mask that this program did not write is a foreign change.
    world.thread_mut(threads[0]).mask = set("6");
    let causes = |plan: &Plan<Linted>| plan.drifts.iter().map(|d| d.cause).collect::<Vec<_>>();
    assert_eq!(causes(&world.run()), [MaskDriftCause::Foreign]);
    // Overwritten masks that are observed before the cpuset change do not start a back-off.
    world.observation.at.0 += SETTLING_MICROS;
    for _ in 0..10 {
        assert_eq!(wiped(&mut world, 1000), [MaskDriftCause::Foreign; 2]);
        world.observation.cpuset_changes += 1;
        world.run();
        world.observation.at.0 += SETTLING_MICROS;
    }
    let now = world.observation.at;
    assert_eq!(world.run().history().next_retry(now), None);
}

/// Changes the mask of a thread at a given time like another program; returns the next plan.
fn changed(world: &mut World, thread: ThreadId, seconds: u64) -> Plan<Linted> {
    world.observation.at.0 = seconds * 1_000_000;
    world.thread_mut(thread).mask = set("6");
    world.run()
}

#[test]
fn after_the_fourth_change_within_a_minute_a_thread_is_left_alone_for_a_minute() {
    let mut world = named(1, 2);
    world.run();
    let thread = world.in_slot(0, 1);
    let at = |seconds: u64| Micros(seconds * 1_000_000);
    for second in [100, 101, 102] {
        assert_eq!(changed(&mut world, thread, second).steps.len(), 1);
    }
    let last = changed(&mut world, thread, 103);
    let back_off = BackOff {
        changes: 4,
        first: at(100),
        last: at(103),
        retry_at: at(163),
    };
    let warning = PlacementWarning::BackedOff {
        thread,
        slot: last.drifts[0].slot,
        back_off,
    };
    assert!(last.steps.is_empty() && last.warnings == [warning]);
    assert_eq!(last.drifts[0].cause, MaskDriftCause::Foreign);
    let history = last.history();
    assert_eq!(history.back_off(thread, last.at), Some(back_off));
    assert_eq!(history.next_retry(last.at), Some(at(163)));
    let other = changed(&mut world, thread, 162);
    assert!(other.drifts.is_empty(), "left alone");
    world.observation.at = at(163);
    let retry = world.run();
    assert_eq!(retry.drifts[0].cause, MaskDriftCause::Foreign);
    assert_eq!(retry.steps.len(), 1);
    assert_eq!(retry.history().back_off(thread, retry.at), None);
    // Changed again before the pause has elapsed: the next pause is twice as long.
    let again = changed(&mut world, thread, 222);
    let back_off = again.history().back_off(thread, again.at).unwrap();
    assert_eq!((back_off.changes, back_off.first), (5, at(100)));
    assert_eq!(back_off.retry_at, at(222 + 120));
    // An attempt that lasts as long as the pause ends the back-off and resets the count.
    world.observation.at = at(342);
    assert_eq!(world.run().steps.len(), 1);
    for second in [463, 464, 465] {
        assert_eq!(changed(&mut world, thread, second).steps.len(), 1);
    }
}

#[test]
fn a_slow_hand_is_repaired_for_ever() {
    let mut world = named(1, 2);
    world.run();
    let thread = world.in_slot(0, 0);
    for change in 1..10 {
        assert_eq!(changed(&mut world, thread, 21 * change).steps.len(), 1);
    }
}

/// Number of writes to a thread in each of four hours. Its mask is changed whenever `overwrites`
/// returns true for the seconds since the last write; it is checked every second.
fn writes_of_hours(overwrites: impl Fn(u64) -> bool) -> [usize; 4] {
    let mut world = named(1, 2);
    world.observation.at = Micros(0);
    world.run();
    let thread = world.in_slot(0, 1);
    let planned = world.mask(thread);
    let (mut hours, mut written) = ([1, 0, 0, 0], 0);
    for second in 1..4 * 3600 {
        world.observation.at.0 = second * 1_000_000;
        if overwrites(second - written) {
            world.thread_mut(thread).mask = set("6");
        }
        if world.mask(thread) != planned && !world.run().steps.is_empty() {
            hours[second as usize / 3600] += 1;
            written = second;
        }
    }
    hours
}

#[test]
fn repeated_foreign_writes_are_answered_nine_times_in_the_first_hour_and_then_hourly() {
    assert_eq!(writes_of_hours(|_| true), [9, 1, 1, 1]);
    // A program that times its writes gets no more than three repairs per minute.
    for pause in [2, 15, 19, 21, 59, 60, 61, 119, 121] {
        let hours = writes_of_hours(|since| since >= pause);
        assert!(
            hours.iter().all(|writes| *writes <= 181),
            "{pause}: {hours:?}"
        );
    }
}

#[test]
fn a_mask_that_is_changed_before_it_is_read_back_counts_as_changed() {
    let mut world = named(1, 2);
    let mut noted = None;
    for count in 1..=4 {
        let mut linted = world.plan_only();
        let step = linted.steps[0].clone();
        assert_eq!(linted.steps.len(), 2, "{count}");
        noted = linted.record_overwritten(&step);
        assert_eq!(noted.is_some(), count == 4);
        world.history = linted.into_history();
    }
    assert!(matches!(noted, Some(PlacementWarning::BackedOff { .. })));
    assert_eq!(world.plan_only().steps.len(), 1, "the other thread");
    // An edit of the deployment resets the back-off.
    world.history.clear_changes();
    assert_eq!(world.plan_only().steps.len(), 2);
}

#[test]
fn without_placement_only_masks_that_were_written_are_restored() {
    let mut world = named(2, 2);
    let stranger = world.born(None, 1, "cron");
    world
        .thread_mut(ThreadId {
            start_ticks: stranger.0 as u64,
            tid: Tid(stranger.0),
        })
        .mask = set("3");
    world.run();
    let chosen = world.in_slot(0, 1);
    let moved = world.in_slot(1, 1);
    world.thread_mut(chosen).mask = set("2-3");
    world.policy.placement = PlacementMethod::None;
    let pid = world.worker(1);
    let tid = world.id();
    let inheriting = world.thread(pid, tid, None);
    world.thread_mut(inheriting).mask = world.mask(moved);
    let plan = world.run();
    assert!(
        plan.steps
            .iter()
            .all(|s| s.kind == StepKind::Restore && s.mask == set("0-7"))
    );
    assert_eq!(
        plan.steps.len(),
        4,
        "three placed threads and the one that inherited"
    );
    assert_eq!(
        world.mask(chosen),
        set("2-3"),
        "somebody chose that after us"
    );
    assert!(world.run().steps.is_empty());
    world.policy.placement = PlacementMethod::Tuna;
    assert!(world.run().steps.iter().all(|s| s.kind == StepKind::Pin));
}

#[test]
fn children_of_workers_get_an_inherited_pin_undone_once() {
    let mut world = named(1, 2);
    world.run();
    let main = world.in_slot(0, 0);
    let pin = world.mask(main);
    let helper = world.born(None, 1, "sleep 60");
    let process = world.observation.processes.last_mut().unwrap();
    process.parent = world.history.worker(WorkerIndex(0)).unwrap().pid;
    process.threads[0].mask = pin.clone();
    let plan = world.run();
    assert_eq!(
        (plan.steps.len(), plan.steps[0].kind),
        (1, StepKind::Restore)
    );
    let id = ThreadId {
        start_ticks: helper.0 as u64,
        tid: Tid(helper.0),
    };
    world.thread_mut(id).mask = pin;
    assert!(
        world.run().steps.is_empty(),
        "what it chooses afterwards is its own affair"
    );
}

#[test]
fn ranks_follow_thread_age_until_compute_threads_are_known() {
    let mut world = World::new(1, 2, ServerKind::PreFork, "pack:1 core:4 pu:1");
    world.run();
    let idle = world.in_slot(0, 1);
    let pid = world.worker(0);
    let tid = world.id();
    let busy = world.thread(pid, tid, None);
    world.run();
    assert_eq!(world.in_slot(0, 1), idle);
    world.thread_mut(busy).cpu_ticks = 500;
    world.run();
    assert_eq!(world.in_slot(0, 1), busy);
    world.thread_mut(idle).cpu_ticks = 400;
    world.run();
    assert_eq!(
        world.in_slot(0, 1),
        busy,
        "no flapping between two that compute"
    );
}

#[test]
fn the_main_thread_waits_for_a_pool_whose_size_is_not_known() {
    let mut world = World::new(1, 2, ServerKind::PreFork, "pack:1 core:4 pu:1");
    world.policy.is_pool_size_known = false;
    let peer = world.observation.processes[1].threads.pop().unwrap();
    let plan = world.run();
    assert!(plan.warnings.contains(&PlacementWarning::PoolSizeUnsafe {
        worker: WorkerIndex(0)
    }));
    let main = world.in_slot(0, 0);
    assert_eq!(world.mask(main).len(), 2, "the worker's set");
    world.observation.processes[1].threads.push(peer);
    world.run();
    assert_eq!(world.mask(main).len(), 1);
}

#[test]
fn an_empty_cpuset_is_reported_and_no_mask_is_written() {
    let mut world = named(2, 2);
    world.run();
    world.observation.cpuset = CpuSet::new();
    let plan = world.run();
    assert_eq!(
        (plan.steps.len(), plan.warnings),
        (0, vec![PlacementWarning::EmptyCpuset])
    );
}

#[test]
fn a_first_process_with_an_inherited_narrow_mask_is_reported_and_left_alone() {
    let mut world = named(2, 2);
    let root = world.observation.processes[0].threads[0].id;
    let narrow = set("1");
    world.thread_mut(root).mask = narrow.clone();
    let plan = world.run();
    let inherited = |plan: &Plan<Linted>| {
        let found = plan.warnings.iter();
        found
            .filter(|warning| matches!(warning, PlacementWarning::InheritedAffinity { mask, .. } if *mask == narrow))
            .count()
    };
    assert_eq!(inherited(&plan), 1);
    assert!(plan.steps.iter().all(|step| step.thread != root));
    // A server that is its own worker has a mask set by us, even for a placer that was just
    // started.
    let mut world = World::new(0, 1, ServerKind::PreFork, "pack:1 l3:1 core:2 pu:2");
    world.policy.workers = 1;
    let plan = world.run();
    assert_eq!((plan.steps.len(), inherited(&plan)), (1, 0));
    world.history = PlanHistory::default();
    let plan = world.run();
    let is_reported =
        |warning: &PlacementWarning| matches!(warning, PlacementWarning::InheritedAffinity { .. });
    assert!(plan.steps.is_empty() && !plan.warnings.iter().any(is_reported));
}

fn input<'a>(world: &'a World, solved: Option<(&'a Problem, &'a Mapping)>) -> LintInput<'a> {
    LintInput {
        policy: &world.policy,
        observation: &world.observation,
        history: &world.history,
        solved,
    }
}

#[test]
fn lint_refuses_what_plan_never_makes() {
    let mut world = named(2, 2);
    let good = {
        let problem = problem(&world.policy, &world.observation, None).unwrap();
        let solution = solve(&problem, &mut WorkBudget::unlimited()).unwrap();
        plan(
            &world.policy,
            &world.observation,
            Some(&solution.mapping),
            &world.history,
        )
    };
    let refused = |change: &dyn Fn(&mut Plan<Proposed>)| {
        let mut bad = good.clone();
        change(&mut bad);
        lint(bad, &input(&world, None)).unwrap_err()
    };
    let outside = refused(&|p| p.steps[0].mask = set("0,9"));
    assert!(matches!(outside, LintError::OutsideCpuset { .. }));
    assert!(matches!(
        refused(&|p| p.steps[0].mask = set("")),
        LintError::OutsideCpuset { .. }
    ));
    let twice = refused(&|p| p.steps.push(p.steps[0].clone()));
    assert!(matches!(twice, LintError::Twice { .. }));
    let slot = refused(&|p| p.steps[0].slot = p.steps[1].slot);
    assert!(matches!(slot, LintError::Twice { .. }));
    let unknown = refused(&|p| p.steps[0].thread.start_ticks += 1);
    assert!(matches!(unknown, LintError::UnknownThread { .. }));
    let root = world.observation.processes[0].clone();
    let arbiter = refused(&|p| {
        (p.steps[0].process, p.steps[0].thread) = (root.id, root.threads[0].id);
    });
    assert!(matches!(arbiter, LintError::NotAWorker { .. }));
    let back = refused(&|p| p.steps[0].kind = StepKind::Restore);
    assert!(matches!(back, LintError::OutsideCpuset { .. }));
    let problem = problem(&world.policy, &world.observation, None).unwrap();
    let broken = Mapping {
        threads: 2,
        cpus: vec![albacore_topology::CpuId(0); 3],
    };
    let mapping = lint(good.clone(), &input(&world, Some((&problem, &broken)))).unwrap_err();
    assert!(matches!(mapping, LintError::Mapping { .. }));
    world.kill(Pid(102));
}

#[derive(Clone, Debug)]
enum Edit {
    Respawn(u16),
    Taskset(u16, u16),
    Shrink(u8),
    Grow,
    Extra(u16),
    Idle,
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (0..4u16).prop_map(Edit::Respawn),
        (0..4u16, 0..4u16).prop_map(|(w, r)| Edit::Taskset(w, r)),
        (0..8u8).prop_map(Edit::Shrink),
        Just(Edit::Grow),
        (0..4u16).prop_map(Edit::Extra),
        Just(Edit::Idle),
    ]
}

fn apply(world: &mut World, edit: &Edit) {
    match *edit {
        Edit::Respawn(worker) => {
            let pid = world.worker(worker % world.policy.workers);
            world.kill(pid);
            world.birth_of_worker(worker % world.policy.workers);
        }
        Edit::Taskset(worker, rank) => {
            let (w, r) = (worker % world.policy.workers, rank % world.policy.threads);
            let thread = world.in_slot(w, r);
            world.thread_mut(thread).mask = world.observation.cpuset.clone();
        }
        Edit::Shrink(cpu) => {
            let mut smaller = world.observation.cpuset.clone();
            smaller.remove(albacore_topology::CpuId(cpu.into()));
            if !smaller.is_empty() {
                move_cpuset(world, smaller);
            }
        }
        Edit::Grow => {
            let all = world.observation.machine.cpuset();
            move_cpuset(world, all);
        }
        Edit::Extra(worker) => {
            let pid = world.worker(worker % world.policy.workers);
            let tid = world.id();
            world.thread(pid, tid, None);
        }
        Edit::Idle => {}
    }
}

/// Like kernels before 6.2: sets all masks to the whole new cpuset.
fn move_cpuset(world: &mut World, cpuset: CpuSet) {
    if cpuset == world.observation.cpuset {
        return;
    }
    world.observation.cpuset = cpuset.clone();
    world.observation.cpuset_changes += 1;
    for process in &mut world.observation.processes {
        process
            .threads
            .iter_mut()
            .for_each(|thread| thread.mask = cpuset.clone());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_happens_masks_stay_inside_the_cpuset_and_a_second_plan_is_empty(
        workers in 1..5u16,
        threads in 1..5u16,
        is_named in any::<bool>(),
        edits in proptest::collection::vec(edit(), 1..20),
    ) {
        let server_kind = if is_named { ServerKind::Named } else { ServerKind::PreFork };
        let mut world = World::new(workers, threads, server_kind, "pack:1 l3:2 core:2 pu:2");
        world.run();
        for edit in &edits {
            apply(&mut world, edit);
            let plan = world.run();
            for step in &plan.steps {
                prop_assert!(step.mask.is_subset(&world.observation.cpuset));
                prop_assert_ne!(step.process.pid, world.observation.processes[0].id.pid);
            }
            let again = world.run();
            prop_assert_eq!(again.steps.len(), 0, "after {:?}", edit);
            prop_assert_eq!(again.drifts.len(), 0);
            // Every slot has a thread, and no two slots have the same thread.
            let filled = usize::from(workers) * usize::from(threads);
            prop_assert_eq!(world.history.slot_count(), filled);
            let root = &world.observation.processes[0].threads[0];
            prop_assert_eq!(&root.mask, &world.observation.cpuset);
        }
    }

    #[test]
    fn one_respawn_moves_the_threads_of_that_worker_and_no_others(
        workers in 1..5u16,
        threads in 1..5u16,
        is_named in any::<bool>(),
        victims in proptest::collection::vec(0..4u16, 1..6),
    ) {
        let server_kind = if is_named { ServerKind::Named } else { ServerKind::PreFork };
        let mut world = World::new(workers, threads, server_kind, "pack:1 l3:2 core:2 pu:2");
        world.run();
        for victim in victims {
            let victim = victim % workers;
            let pid = world.worker(victim);
            world.kill(pid);
            let born = world.birth_of_worker(victim);
            let plan = world.run();
            prop_assert!(plan.steps.iter().all(|step| step.process.pid == born));
            prop_assert_eq!(plan.steps.len(), usize::from(threads));
            prop_assert_eq!(world.worker(victim), born);
        }
    }
}

#[test]
fn the_problem_has_the_distances_of_the_machine_under_those_of_the_policy() {
    let mut world = World::new(1, 2, ServerKind::Named, "pack:1 l3:2 core:2 pu:1");
    let measured = Distances {
        l3: 61,
        numa: 130,
        ..Distances::default()
    };
    world.observation.machine = world.observation.machine.with_distances(measured);
    world.policy.distances = "l3=70".parse().unwrap();
    let problem = problem(&world.policy, &world.observation, None).unwrap();
    let expected = Distances { l3: 70, ..measured };
    assert_eq!(problem.distances, expected);
}
