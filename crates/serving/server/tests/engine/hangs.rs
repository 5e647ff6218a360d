//! Hung workers are detected, killed and replaced; their batches run again, and nothing is lost.

use super::clients::Clients;
use super::*;

const SMALL: [&str; 1] = ["main_small_d6.ubj"];

/// Number of workers stopped under load.
const STOPS: u64 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_workers_under_load_lose_and_duplicate_no_request() {
    let started = Arc::new(start(config(2, 2), &SMALL).await);
    let clients = Clients::start(&started);
    // Until the costs are learned, the hang timeout is long.
    started
        .until("costs are known", |e| {
            e.stats().models[0].batches_total > 100
        })
        .await;
    for stop in 0..STOPS {
        let stopped = started.pids()[stop as usize % 2];
        signal("-STOP", stopped);
        started
            .until("it is ended and replaced", |e| {
                let stats = e.stats();
                !is_alive(stopped) && stats.workers_ready == 2
            })
            .await;
    }
    let answers = clients.end().await;
    let stats = started.engine.stats();
    let model = &stats.models[0];
    assert_eq!(
        (model.requests_total, model.answered_total),
        (answers, answers)
    );
    assert_eq!((model.failed_total, stats.queue_rows), (0, 0));
    assert_eq!((stats.arena_used_bytes, stats.workers_busy), (0, 0));
    // A stall of the machine may look like a hung worker.
    assert!(stats.worker_hangs_total >= STOPS, "{stats:?}");
    assert!(stats.replayed_batches_total >= 1, "{stats:?}");
    let events = started.events.lock().unwrap();
    let is_reported = |event: &EngineEvent| matches!(event, EngineEvent::WorkerExited { cause, .. } if cause.contains("hung"));
    assert!(events.iter().any(is_reported), "{events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_stopped_in_the_middle_of_a_long_batch_is_replaced_and_the_batch_runs_again() {
    let started = start(config(1, 1), &SMALL).await;
    let rows = started.rows(0, 200, 3);
    let kinds = KindSet::only(Kind::Interactions);
    let expected = started.expected(0, Kind::Interactions, &rows);
    for _ in 0..8 {
        started.submit(0, kinds, &rows).await.unwrap();
    }
    let call = tokio::spawn(started.submit(0, kinds, &rows));
    started
        .until("it runs", |engine| engine.stats().workers_busy == 1)
        .await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    signal("-STOP", started.pids()[0]);
    let reply = call.await.unwrap().unwrap();
    assert!(reply.output(Kind::Interactions) == Some(&expected[..]));
    let stats = started.engine.stats();
    assert_eq!(stats.models[0].failed_total, 0);
}

/// A jump to itself.
#[cfg(target_arch = "x86_64")]
const JUMP_TO_SELF: [u8; 2] = [0xeb, 0xfe];
#[cfg(target_arch = "aarch64")]
const JUMP_TO_SELF: [u8; 4] = [0x00, 0x00, 0x00, 0x14];

/// Makes the main thread of a stopped process loop forever at its current instruction.
fn make_loop_forever(pid: i32) {
    use std::os::unix::fs::FileExt as _;
    // /proc/PID/syscall contains the number and arguments of a system call, or -1, then the stack
    // pointer and the program counter. It is "running" until the process has stopped, for which it
    // must be scheduled once more; among busy processes that takes a while.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let mut attempts = std::iter::repeat_with(|| std::thread::sleep(Duration::from_millis(1)))
        .take_while(|()| std::time::Instant::now() < deadline);
    let program_counter = attempts.find_map(|()| {
        let syscall = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
        let counter = syscall
            .trim()
            .rsplit(' ')
            .next()?
            .strip_prefix("0x")?
            .to_owned();
        u64::from_str_radix(&counter, 16).ok()
    });
    let memory = std::fs::File::options()
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .unwrap();
    memory
        .write_all_at(&JUMP_TO_SELF, program_counter.unwrap())
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_an_endless_loop_is_replaced_and_its_batch_runs_again() {
    let started = start(config(1, 1), &SMALL).await;
    let rows = started.rows(0, 200, 3);
    let kinds = KindSet::only(Kind::Interactions);
    let expected = started.expected(0, Kind::Interactions, &rows);
    for _ in 0..8 {
        started.submit(0, kinds, &rows).await.unwrap();
    }
    // An idle worker loops when it gets the next batch, a busy one within its batch.
    for is_busy in [false, true] {
        let worker = started.pids()[0];
        let call = is_busy.then(|| tokio::spawn(started.submit(0, kinds, &rows)));
        if is_busy {
            started
                .until("it runs", |engine| engine.stats().workers_busy == 1)
                .await;
        }
        signal("-STOP", worker);
        make_loop_forever(worker);
        signal("-CONT", worker);
        let call = call.unwrap_or_else(|| tokio::spawn(started.submit(0, kinds, &rows)));
        let reply = call.await.unwrap().unwrap();
        assert!(reply.output(Kind::Interactions) == Some(&expected[..]));
        assert!(!is_alive(worker), "it ran for ever");
        started
            .until("another one is up", |engine| {
                engine.stats().workers_ready == 1
            })
            .await;
    }
    let stats = started.engine.stats();
    assert_eq!(stats.models[0].failed_total, 0);
    assert!(stats.worker_hangs_total >= 2, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_front_kills_no_worker() {
    // The front is this process: a helper stops it for longer than any hang timeout and then
    // continues it.
    let started = start(config(1, 1), &SMALL).await;
    let rows = started.rows(0, 10, 3);
    for _ in 0..20 {
        started.submit(0, value(), &rows).await.unwrap();
    }
    let hangs = started.engine.stats().worker_hangs_total;
    let me = std::process::id();
    let worker = started.pids()[0];
    let script = format!("kill -STOP {worker} {me}; sleep 1; kill -CONT {worker} {me}");
    let mut helper = std::process::Command::new("sh")
        .args(["-c", &script])
        .spawn()
        .unwrap();
    while helper.try_wait().unwrap().is_none() {
        started.submit(0, value(), &rows).await.unwrap();
    }
    assert_eq!(started.engine.stats().worker_hangs_total, hangs);
}

/// Processes that keep a CPU busy; killed on drop.
struct BusyProcesses(Vec<std::process::Child>);

impl BusyProcesses {
    /// Starts `count` processes on one CPU.
    fn start(count: usize, cpu: &str) -> Self {
        let start = |_| {
            std::process::Command::new("taskset")
                .args(["-c", cpu, "sh", "-c", "while :; do :; done"])
                .spawn()
                .unwrap()
        };
        Self((0..count).map(start).collect())
    }
}

impl Drop for BusyProcesses {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Pins all threads of a process to its first allowed CPU; returns that CPU.
fn pin(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpu = list.unwrap().trim().split(['-', ',']).next().unwrap();
    let status = std::process::Command::new("taskset")
        .args(["-a", "-c", "-p", cpu, &pid.to_string()])
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
    cpu.to_owned()
}

/// Gives all threads of a process a ninth of the default scheduling weight, so that the costs
/// learned on a busy machine are still much lower than those beside the other processes.
fn lower_priority(pid: i32) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let tids = tasks.map(|task| task.unwrap().file_name());
    let status = std::process::Command::new("renice")
        .args(["-n", "10", "-p"])
        .args(tids)
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
}

/// Runs enough batches to learn their cost.
async fn learn(started: &Started, kinds: KindSet, rows: &[f32]) {
    for _ in 0..8 {
        started.submit(0, kinds, rows).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_shares_its_cpu_with_twenty_busy_processes_is_not_killed() {
    let started = start(config(1, 2), &SMALL).await;
    let rows = started.rows(0, 200, 3);
    let kinds = KindSet::only(Kind::Interactions);
    let expected = started.expected(0, Kind::Interactions, &rows);
    learn(&started, kinds, &rows).await;
    let worker = started.pids()[0];
    lower_priority(worker);
    let _busy = BusyProcesses::start(20, &pin(worker));
    let start_time = Instant::now();
    // At first each batch takes about 180 times the learned cost.
    while start_time.elapsed() < Duration::from_secs(10) {
        let reply = started.submit(0, kinds, &rows).await.unwrap();
        assert!(reply.output(Kind::Interactions) == Some(&expected[..]));
    }
    let stats = started.engine.stats();
    assert_eq!((stats.worker_hangs_total, started.pids()[0]), (0, worker));
    assert_eq!(stats.replayed_batches_total, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_loops_or_is_stopped_among_twenty_busy_processes_is_replaced() {
    let started = start(config(1, 1), &SMALL).await;
    let rows = started.rows(0, 200, 3);
    let kinds = KindSet::only(Kind::Interactions);
    let expected = started.expected(0, Kind::Interactions, &rows);
    learn(&started, kinds, &rows).await;
    for loops in [true, false] {
        let worker = started.pids()[0];
        let _busy = BusyProcesses::start(20, &pin(worker));
        signal("-STOP", worker);
        if loops {
            make_loop_forever(worker);
            signal("-CONT", worker);
        }
        let reply = started.submit(0, kinds, &rows).await.unwrap();
        assert!(reply.output(Kind::Interactions) == Some(&expected[..]));
        assert!(!is_alive(worker));
        started
            .until("another one is up", |e| e.stats().workers_ready == 1)
            .await;
    }
    assert!(started.engine.stats().worker_hangs_total >= 2);
}
