use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use albacore_mapping::Mode;
use albacore_plan::{Enforcement, MainThread, Placement, Source};

use super::*;
use crate::RowState;

/// A master of two workers that never replaces them.
struct Master(Child);

impl Master {
    fn start() -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & sleep 600 & wait"]);
        Self(shell.process_group(0).spawn().unwrap())
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(self.0.id() as i32);
        drop(nix::sys::signal::killpg(group, nix::sys::signal::SIGKILL));
        drop(self.0.wait());
    }
}

#[test]
fn a_death_is_followed_at_once_by_fast_looks_for_the_birth_that_it_announces() {
    let master = Master::start();
    let mut placer = Placer::new(Config::live()).unwrap();
    let config = SubjectConfig {
        root: Pid(master.0.id() as i32),
        source: Source::PreFork,
        policy: Policy {
            workers: 2,
            threads: 1,
            mode: Mode::Scatter,
            placement: Placement::Tuna,
            enforcement: Enforcement::Observe,
            main_thread: MainThread::Pinned,
            is_pool_size_known: true,
        },
    };
    let id = placer.add_subject(&config).unwrap();
    // bound: the test's time limit
    while placer
        .table()
        .unwrap()
        .iter()
        .filter(|row| row.state != RowState::Missing)
        .count()
        < 2
    {
        placer.step(Duration::from_millis(50), &mut |_| {}).unwrap();
    }
    let worker = placer.table().unwrap()[0].pid.unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(worker.0),
        nix::sys::signal::SIGKILL,
    )
    .unwrap();
    // bound: the test's time limit
    while placer.subjects[&id].fast_until == Micros(0) {
        placer.step(Duration::from_millis(50), &mut |_| {}).unwrap();
    }
    let now = placer.reader.clock.now().unwrap();
    assert!(
        placer.due.births <= after(now, FAST_PAUSE_MAX),
        "the step that saw the death expects the birth"
    );
    assert!(placer.subjects[&id].expects_birth(now));
}
