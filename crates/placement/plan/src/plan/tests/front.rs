//! Event loops of the front end, together with workers.

use super::*;
use crate::front_thread_name;
use crate::limits::FRONT_THREADS_MAX;

/// A process with event loops: a main thread, `loops` named threads and one with another name.
struct Front {
    pid: Pid,
    loops: Vec<ThreadId>,
    other: ThreadId,
}

impl World {
    fn front(&mut self, loops: u16) -> Front {
        let pid = self.born(None, 1, "server");
        let loops = (0..loops).map(|index| self.front_thread(pid, &front_thread_name(index)));
        Front {
            pid,
            loops: loops.collect(),
            other: self.front_thread(pid, "tokio-rt-worker"),
        }
    }

    fn front_thread(&mut self, pid: Pid, name: &str) -> ThreadId {
        let tid = self.id();
        let id = self.thread(pid, tid, None);
        self.thread_mut(id).comm = name.to_owned();
        id
    }

    fn root(&self) -> Pid {
        self.observation.processes[0].id.pid
    }

    fn first_thread(&self, pid: Pid) -> ThreadId {
        ThreadId {
            start_ticks: pid.0 as u64,
            tid: pid.first_thread(),
        }
    }

    /// The cpus of main threads.
    fn mains(&mut self) -> CpuSet {
        let workers = 0..self.policy.workers;
        let mains: Vec<ThreadId> = workers.map(|worker| self.in_slot(worker, 0)).collect();
        let masks = mains.into_iter().map(|main| self.mask(main));
        masks.fold(CpuSet::new(), |all, mask| all.union(&mask))
    }

    /// Sets the cpuset, like a kernel that restricts every mask to it.
    fn set_cpuset(&mut self, cpuset: &str) {
        self.observation.cpuset = set(cpuset);
        self.observation.cpuset_changes += 1;
        for thread in self
            .observation
            .processes
            .iter_mut()
            .flat_map(|p| &mut p.threads)
        {
            let left = thread.mask.intersection(&self.observation.cpuset);
            thread.mask = if left.is_empty() { set(cpuset) } else { left };
        }
    }

    fn release(&mut self) -> Plan<Linted> {
        self.policy.placement = PlacementMethod::None;
        let plan = plan(&self.policy, &self.observation, None, &self.history);
        let linted = lint(plan, &input(self, None)).unwrap();
        for step in &linted.steps {
            self.thread_mut(step.thread).mask = step.mask.clone();
        }
        linted
    }
}

#[test]
fn event_loops_of_all_processes_get_the_cpus_without_main_threads() {
    let mut world = named(2, 2);
    let root = world.root();
    let in_root = world.front_thread(root, "albf.io0");
    let (serving, standby) = (world.front(2), world.front(2));
    world.run();
    let mains = world.mains();
    let free = world.observation.cpuset.difference(&mains);
    assert_eq!(free.len(), 6);
    for &event_loop in [in_root].iter().chain(&serving.loops).chain(&standby.loops) {
        assert_eq!(world.mask(event_loop), free);
    }
    // Main threads may start processes, which inherit their masks.
    for pid in [root, serving.pid, standby.pid] {
        let first = world.first_thread(pid);
        assert_eq!(world.mask(first), world.observation.cpuset);
    }
    assert_eq!(world.mask(serving.other), world.observation.cpuset);
    let again = world.run();
    assert_eq!((again.steps.len(), again.drifts.len()), (0, 0));
    assert!(again.warnings.is_empty(), "{:?}", again.warnings);
}

#[test]
fn too_few_cpus_without_main_threads_leave_event_loops_on_the_whole_cpuset() {
    // Six, then all of the eight cpus have a main thread.
    for (workers, loops, is_apart) in [(6, 2, true), (6, 3, false), (8, 1, false)] {
        let mut world = named(workers, 1);
        let front = world.front(loops);
        let first = world.run();
        let mains = world.mains();
        let free = world.observation.cpuset.difference(&mains);
        for thread in front.loops {
            let written = first.steps.iter().any(|step| step.thread == thread);
            assert_eq!(written, is_apart, "{workers} workers, {loops} event loops");
            let expected = if is_apart {
                &free
            } else {
                &world.observation.cpuset.clone()
            };
            assert_eq!(world.mask(thread), *expected);
        }
    }
}

#[test]
fn unpinned_main_threads_leave_event_loops_the_cpus_of_no_worker() {
    let mut world = named(2, 2);
    world.policy.main_thread = MainThread::WorkerSet;
    let front = world.front(1);
    world.run();
    let workers = (0..2).map(|worker| {
        let main = world.in_slot(worker, 0);
        world.mask(main)
    });
    let taken = workers.fold(CpuSet::new(), |all, mask| all.union(&mask));
    let free = world.observation.cpuset.difference(&taken);
    assert_eq!((world.mask(front.loops[0]), free.len()), (free.clone(), 4));
}

#[test]
fn event_loops_are_placed_again_after_a_kill_a_foreign_write_and_a_change_of_the_cpuset() {
    let mut world = named(1, 1);
    let front = world.front(1);
    world.run();
    let event_loop = front.loops[0];
    let planned = world.mask(event_loop);
    world.thread_mut(event_loop).mask = world.observation.cpuset.clone();
    let drifts = world.run().drifts;
    assert_eq!(
        (drifts.len(), drifts[0].cause),
        (1, MaskDriftCause::Foreign)
    );
    assert_eq!(world.mask(event_loop), planned);

    world.kill(front.pid);
    let front = world.front(1);
    world.run();
    assert_eq!(world.mask(front.loops[0]), planned);

    // The last cpu without a main thread is removed and added again.
    world.set_cpuset("0");
    world.run();
    assert_eq!(world.mask(front.loops[0]), set("0"));
    world.set_cpuset("0-3");
    world.run();
    let free = set("0-3").difference(&world.mains());
    assert_eq!((world.mask(front.loops[0]), free.len()), (free.clone(), 3));
}

#[test]
fn the_masks_of_event_loops_are_restored() {
    let mut world = named(1, 1);
    let front = world.front(2);
    world.run();
    assert_ne!(world.mask(front.loops[1]), world.observation.cpuset);
    let given = world.release().steps;
    assert_eq!(given.len(), 3, "two event loops and a worker's thread");
    for thread in front.loops {
        assert_eq!(world.mask(thread), world.observation.cpuset);
    }
}

#[test]
fn a_thread_that_inherited_the_mask_of_an_event_loop_gets_the_whole_cpuset_and_no_other() {
    let mut world = named(1, 1);
    let front = world.front(1);
    world.run();
    let inherited = world.mask(front.loops[0]);
    // It still has the name of its parent thread, an event loop.
    let heir = world.front_thread(front.pid, "albf.io0");
    world.thread_mut(heir).mask = inherited.clone();
    let stranger = world.front_thread(front.pid, "other");
    world.thread_mut(stranger).mask = set("3-4");
    let first = world.first_thread(front.pid);
    world.thread_mut(first).mask = inherited.clone();
    world.run();
    assert_eq!(world.mask(heir), world.observation.cpuset);
    assert_eq!(world.mask(stranger), set("3-4"), "another program's");
    assert_eq!(
        world.mask(first),
        inherited,
        "it has spawned the event loop"
    );
    assert_eq!(world.mask(front.loops[0]), inherited);
    assert!(world.run().steps.is_empty());
}

#[test]
fn a_narrow_mask_that_the_root_was_started_with_is_still_reported_beside_placed_event_loops() {
    let mut world = named(1, 1);
    let root = world.root();
    world.front_thread(root, "albf.io0");
    world.run();
    let first = world.first_thread(root);
    world.thread_mut(first).mask = set("0-3");
    let plan = world.run();
    let mask = set("0-3");
    let expected = PlacementWarning::InheritedAffinity { pid: root, mask };
    assert_eq!((plan.steps.len(), &plan.warnings[..]), (0, &[expected][..]));
}

#[test]
fn names_of_event_loops_mean_nothing_in_workers_their_helpers_and_other_servers() {
    let mut world = named(1, 1);
    let worker = world.observation.processes[1].id.pid;
    let in_worker = world.front_thread(worker, "albf.io0");
    let helper = world.front(1);
    world.observation.processes[2].parent = worker;
    world.run();
    let own = world.in_slot(0, 0);
    assert_eq!(world.mask(in_worker), world.mask(own), "an extra thread");
    assert_eq!(world.mask(helper.loops[0]), world.observation.cpuset);

    let machine = "pack:1 l3:1 core:4 pu:2";
    let mut foreign = World::new(2, 1, ServerKind::PreFork, machine);
    let root = foreign.root();
    let lookalike = foreign.front_thread(root, "albf.io0");
    foreign.run();
    assert_eq!(foreign.mask(lookalike), foreign.observation.cpuset);
}

#[test]
fn a_pod_that_names_thousands_of_threads_after_event_loops_gets_no_more_than_the_limit() {
    let mut world = named(1, 1);
    let threads = 2 * FRONT_THREADS_MAX as u16;
    let machine = "pack:1 l3:1 core:1024 pu:1";
    world.observation.machine = parse_synthetic(machine).unwrap();
    world.set_cpuset("0-1023");
    let root = world.root();
    for index in 0..threads {
        world.front_thread(root, &front_thread_name(index));
    }
    let placed = world.run();
    let front = placed
        .targets
        .values()
        .filter(|target| target.role.front().is_some());
    assert_eq!(front.count(), FRONT_THREADS_MAX);
    assert!(world.run().steps.is_empty(), "the same ones");
}

#[test]
fn the_lint_refuses_pins_of_threads_that_are_no_event_loops_and_masks_with_main_threads() {
    let mut world = named(2, 2);
    let front = world.front(1);
    let lookalike = world.front_thread(front.pid, "albf.io0");
    let worker = world.observation.processes[1].id.pid;
    let helper = world.front(1);
    world.observation.processes.last_mut().unwrap().parent = worker;
    let problem = problem(&world.policy, &world.observation, None).unwrap();
    let mapping = solve(&problem, &mut WorkBudget::unlimited())
        .unwrap()
        .mapping;
    let proposed = plan(
        &world.policy,
        &world.observation,
        Some(&mapping),
        &world.history,
    );
    let solved = Some((&problem, &mapping));
    assert!(lint(proposed.clone(), &input(&world, solved)).is_ok());
    let is_loop = |step: &&mut PlanStep| step.thread == front.loops[0];
    let refusal = |change: &dyn Fn(&mut PlanStep)| {
        let mut wrong = proposed.clone();
        change(wrong.steps.iter_mut().find(is_loop).unwrap());
        lint(wrong, &input(&world, solved)).err()
    };
    for thread in [world.first_thread(front.pid), front.other, lookalike] {
        let error = refusal(&|step| step.thread = thread);
        assert_eq!(error, Some(LintError::NotAnEventLoop { tid: thread.tid }));
    }
    let in_helper = helper.loops[0];
    let error = refusal(&|step| {
        step.thread = in_helper;
        step.process = world.observation.processes.last().unwrap().id;
    });
    assert_eq!(
        error,
        Some(LintError::NotAnEventLoop { tid: in_helper.tid })
    );
    let slot = Slot {
        worker: WorkerIndex(0),
        rank: Rank(0),
    };
    let pid = front.pid;
    let error = refusal(&|step| step.slot = Some(slot));
    assert_eq!(error, Some(LintError::NotAWorker { pid }));
    let main: CpuSet = mapping.cpu(slot).into_iter().collect();
    let error = refusal(&|step| step.mask = step.mask.union(&main));
    assert!(
        matches!(error, Some(LintError::OnMainThread { .. })),
        "{error:?}"
    );
    // Without a checked mapping, the cpus of main threads are unknown.
    let error = lint(proposed.clone(), &input(&world, None)).err();
    assert_eq!(error, Some(LintError::NotAWorker { pid }));
}
