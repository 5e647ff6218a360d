//! A fake pre-fork server for tests, whose workers have threads that die, are replaced and
//! misbehave on command.
//!
//! `prefork_server WORKERS THREADS [named] [pin=MILLIS] [loops=N] [fronts=K] [quiet]` starts
//! WORKERS worker processes with THREADS threads each and replaces every one that dies. `named`:
//! threads are named like those of the built-in server. `pin`: every thread of worker 0 sets its
//! own mask at this interval. `loops`: the root has N threads named as event loops, which spawn a
//! thread now and then unless `quiet`. `fronts`: K child processes have the event loops instead,
//! and are replaced as well. Lines on stdin are commands: `thread W` (worker W starts one more
//! thread), `helper W` (a child process), `spin W` (its newest thread starts to compute). `again`
//! starts the same number of workers with the same names, `retire` ends the previous ones, `burn`
//! starts a computing thread in the root. All processes exit when stdin is closed.
//!
//! `prefork_server place PID WORKERS THREADS` is a placer for such a server that can be killed; on
//! SIGTERM it restores the masks.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, BufRead, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use albacore_os::{HostRoot, Pid, Poll, PollKey, Signals, Tid, read_mask, write_mask};
use albacore_placer::{Placer, PlacerConfig, SubjectConfig};
use albacore_plan::{Enforcement, MainThread, PlacementMethod, ServerKind, SubjectPolicy};
use albacore_solver::Mode;

/// Children with lower indexes are not replaced.
static RETIRED: AtomicUsize = AtomicUsize::new(0);

type Stdins = Arc<Mutex<Vec<Option<std::process::ChildStdin>>>>;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "worker" => worker(rest),
        Some((first, rest)) if first == "front" => front(rest),
        Some((first, rest)) if first == "place" => place(rest),
        _ => root(&arguments),
    }
}

fn number(arguments: &[String], at: usize) -> io::Result<usize> {
    let text = arguments.get(at).ok_or(io::ErrorKind::InvalidInput)?;
    text.parse().map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn root(arguments: &[String]) -> io::Result<()> {
    let workers = number(arguments, 0)?;
    let fronts = option(arguments, "fronts=").unwrap_or(0);
    let loops = option(arguments, "loops=").unwrap_or(0);
    let is_quiet = arguments.iter().any(|it| it == "quiet");
    if fronts == 0 {
        start_loops(loops, is_quiet);
    }
    let stdins: Stdins = Arc::default();
    let start_child = |start: Vec<String>| {
        let stdins = stdins.clone();
        let Ok(mut all) = stdins.lock() else { return };
        let child = all.len();
        all.push(None);
        drop(all);
        // One supervisor thread each, so that different threads of one process have children.
        std::thread::spawn(move || supervise(child, &start, &stdins));
    };
    let start_workers = || {
        for worker in 0..workers {
            start_child([&["worker".to_owned(), worker.to_string()], &arguments[1..]].concat());
        }
    };
    start_workers();
    for _ in 0..fronts {
        start_child([&["front".to_owned(), loops.to_string()], &arguments[2..]].concat());
    }
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line.as_str() {
            "again" => start_workers(),
            "burn" => drop(std::thread::spawn(compute)),
            "retire" => {
                RETIRED.store(workers, Ordering::Relaxed);
                if let Ok(mut stdins) = stdins.lock() {
                    // They exit when their stdin is closed.
                    stdins[..workers].fill_with(|| None);
                }
            }
            _ => {}
        }
        let Some(worker) = line.split(' ').nth(1).and_then(|w| w.parse::<usize>().ok()) else {
            continue;
        };
        if let Ok(mut stdins) = stdins.lock()
            && let Some(Some(stdin)) = stdins.get_mut(worker)
        {
            writeln!(stdin, "{line}")?;
        }
    }
    // The workers exit as well, because their stdin is closed.
    std::process::exit(0);
}

fn option(arguments: &[String], name: &str) -> Option<usize> {
    let mut values = arguments.iter().filter_map(|it| it.strip_prefix(name));
    values.next()?.parse().ok()
}

/// A front end process that is not the root; exits when its stdin is closed.
fn front(arguments: &[String]) -> io::Result<()> {
    let is_quiet = arguments.iter().any(|it| it == "quiet");
    start_loops(number(arguments, 0)?, is_quiet);
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(|_| ())
}

/// Starts event loops that sleep; unless quiet, each spawns threads that inherit its mask.
fn start_loops(count: usize, is_quiet: bool) {
    for index in 0..count {
        let builder = std::thread::Builder::new().name(format!("albf.io{index}"));
        // If a thread cannot be created, the test notices that it is missing.
        let _ = builder.spawn(move || {
            // bound: sleeps until the process exits
            loop {
                std::thread::sleep(Duration::from_millis(200));
                if is_quiet {
                    continue;
                }
                let _ = std::thread::spawn(|| std::thread::sleep(Duration::from_secs(2))).join();
            }
        });
    }
}

fn supervise(child: usize, arguments: &[String], stdins: &Stdins) -> io::Result<()> {
    let program = std::env::current_exe()?;
    // bound: the number of kills
    loop {
        let mut command = Command::new(&program);
        let mut started = command.args(arguments).stdin(Stdio::piped()).spawn()?;
        if let Ok(mut stdins) = stdins.lock() {
            stdins[child] = started.stdin.take();
        }
        started.wait()?;
        if child < RETIRED.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

fn place(arguments: &[String]) -> io::Result<()> {
    let root = Pid(number(arguments, 0)? as i32);
    let (workers, threads) = (number(arguments, 1)? as u16, number(arguments, 2)? as u16);
    let policy = SubjectPolicy {
        workers,
        threads,
        mode: Mode::Scatter,
        placement: PlacementMethod::Tuna,
        enforcement: Enforcement::Enforce,
        main_thread: MainThread::Pinned,
        distances: Default::default(),
        is_pool_size_known: true,
    };
    let signals = Signals::install().map_err(io::Error::other)?;
    let mut placer = Placer::new(PlacerConfig::live()).map_err(io::Error::other)?;
    let handle = placer.handle();
    std::thread::spawn(move || {
        let Ok(poll) = Poll::new() else { return };
        if poll.add(&signals, PollKey(0)).is_ok() {
            // bound: ends with a signal
            while poll
                .wait(Duration::from_secs(60))
                .is_ok_and(|keys| keys.is_empty())
            {}
        }
        let _ = handle.stop();
    });
    let server_kind = ServerKind::Named;
    let subject = SubjectConfig {
        root,
        server_kind,
        policy,
        cgroup: None,
    };
    placer.add_subject(&subject).map_err(io::Error::other)?;
    let restored = placer.run(&mut |_| {});
    match restored.errors.first() {
        None => Ok(()),
        Some(error) => Err(io::Error::other(error.clone())),
    }
}

/// Starts one more thread with this rank; it exits when its sender is dropped.
fn thread(worker: usize, rank: usize, is_named: bool, pin: Option<Duration>) -> Sender<()> {
    let (sender, controls) = channel();
    let mut builder = std::thread::Builder::new();
    if is_named {
        builder = builder.name(format!("albw{worker}.{rank}"));
    }
    // If a thread cannot be created, the test notices that it is missing.
    let _ = builder.spawn(move || match pin {
        Some(period) => keep_pinning(period),
        None => serve(&controls),
    });
    sender
}

/// Computes until the process exits.
fn compute() {
    loop {
        std::hint::spin_loop();
    }
}

fn serve(controls: &Receiver<()>) {
    if controls.recv().is_ok() {
        compute()
    }
}

fn me() -> io::Result<Tid> {
    let link = fs::read_link("/proc/thread-self")?;
    let tid = link
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.parse().ok());
    tid.map(Tid)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Keeps resetting its mask to the highest cpu of the mask with which the process started.
fn keep_pinning(period: Duration) {
    let Ok(tid) = me() else { return };
    let Ok(start) = read_mask(&HostRoot::live(), tid) else {
        return;
    };
    let own = start.iter().last().into_iter().collect();
    // bound: until the process exits
    loop {
        if read_mask(&HostRoot::live(), tid).is_ok_and(|mask| mask != own) {
            let _ = write_mask(tid, &own);
        }
        std::thread::sleep(period);
    }
}

fn worker(arguments: &[String]) -> io::Result<()> {
    let (index, threads) = (number(arguments, 0)?, number(arguments, 1)?);
    let is_named = arguments.iter().any(|a| a == "named");
    let pin = arguments
        .iter()
        .find_map(|a| a.strip_prefix("pin=")?.parse().ok());
    let pin = pin.filter(|_| index == 0).map(Duration::from_millis);
    if is_named {
        fs::write("/proc/thread-self/comm", format!("albw{index}.0"))?;
    }
    let mut peers: Vec<_> = (1..threads)
        .map(|rank| thread(index, rank, is_named, pin))
        .collect();
    for line in io::stdin().lock().lines() {
        match line?.split(' ').next() {
            Some("thread") => peers.push(thread(index, peers.len() + 1, is_named, None)),
            Some("helper") => {
                Command::new("sleep")
                    .arg("300")
                    // It may outlive the reader of this process's output.
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .stdin(Stdio::null())
                    .spawn()?;
            }
            Some("spin") => {
                if let Some(newest) = peers.last() {
                    let _ = newest.send(());
                }
            }
            _ => {}
        }
    }
    Ok(())
}
