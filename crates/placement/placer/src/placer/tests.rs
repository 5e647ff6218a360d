//! The loop, step by step, on a real process tree that never replaces its workers.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use albacore_plan::{Enforcement, MainThread, PlacementMethod, ServerKind};
use albacore_solver::Mode;

use super::*;
use crate::SlotState;
use crate::limits::FAST_PAUSE_MAX;

/// An arbiter with two workers that it never replaces. Each worker execs when it reads a line.
struct Arbiter(Child);

impl Arbiter {
    fn start() -> Self {
        let mut shell = Command::new("sh");
        let worker = "(read line <&3; exec sleep 600) &";
        shell.args(["-c", &format!("exec 3<&0; {worker} {worker} wait")]);
        shell.stdin(Stdio::piped()).process_group(0);
        Self(shell.spawn().unwrap())
    }

    fn let_workers_exec(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"1\n2\n").unwrap();
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::SIGKILL);
        drop(self.0.wait());
    }
}

/// Two workers with one thread each, observed only.
fn config(arbiter: &Arbiter) -> SubjectConfig {
    SubjectConfig {
        root: Pid(arbiter.0.id() as i32),
        cgroup: None,
        server_kind: ServerKind::PreFork,
        policy: SubjectPolicy {
            workers: 2,
            threads: 1,
            mode: Mode::Scatter,
            placement: PlacementMethod::Tuna,
            enforcement: Enforcement::Observe,
            main_thread: MainThread::Pinned,
            distances: Default::default(),
            is_pool_size_known: true,
        },
    }
}

fn step_until(placer: &mut Placer, what: &str, is_so: impl Fn(&Placer) -> bool) {
    for _ in 0..2000 {
        if is_so(placer) {
            return;
        }
        placer.step(Duration::from_millis(50), &mut |_| {}).unwrap();
    }
    panic!("not in 2,000 steps: {what}");
}

fn has_two_workers(placer: &Placer) -> bool {
    let rows = placer.table().unwrap();
    rows.iter()
        .filter(|row| row.state != SlotState::Missing)
        .count()
        == 2
}

#[test]
fn a_child_that_execs_after_it_was_first_read_has_its_new_command_line() {
    let mut arbiter = Arbiter::start();
    let mut placer = Placer::new(PlacerConfig::live()).unwrap();
    let id = placer.add_subject(&config(&arbiter)).unwrap();
    step_until(&mut placer, "two children", |placer| {
        placer.subjects[&id].tree.iter().count() == 3
    });
    placer.due.tree = Micros(u64::MAX);
    arbiter.let_workers_exec();
    step_until(&mut placer, "two new command lines", |placer| {
        let processes = placer.subjects[&id].tree.observed();
        processes
            .iter()
            .filter(|p| p.cmdline.starts_with("sleep"))
            .count()
            == 2
    });
}

#[test]
fn the_exit_of_a_worker_starts_fast_polling_for_its_replacement() {
    let mut arbiter = Arbiter::start();
    arbiter.let_workers_exec();
    let mut placer = Placer::new(PlacerConfig::live()).unwrap();
    let id = placer.add_subject(&config(&arbiter)).unwrap();
    step_until(&mut placer, "two workers", has_two_workers);
    let worker = placer.table().unwrap()[0].pid.unwrap();
    let worker = nix::unistd::Pid::from_raw(worker.0);
    nix::sys::signal::kill(worker, nix::sys::signal::SIGKILL).unwrap();
    step_until(&mut placer, "an exit", |placer| {
        let now = placer.reader.clock.now().unwrap();
        placer.subjects[&id].schedule.expects_spawn(now)
    });
    let now = placer.reader.clock.now().unwrap();
    assert!(
        placer.due.spawns <= after(now, FAST_PAUSE_MAX),
        "the step that saw the exit expects the spawn"
    );
    assert!(placer.subjects[&id].expects_spawn(now));
}
