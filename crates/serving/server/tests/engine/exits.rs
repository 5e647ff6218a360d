//! Workers die at arbitrary times: no result is lost, duplicated or wrong, and nothing leaks.

use super::clients::Clients;
use super::*;

const SMALL: [&str; 1] = ["main_small_d6.ubj"];

/// A model whose interactions take long enough to kill the worker within a batch.
pub(crate) const SLOW: [&str; 1] = ["main_medium_d6.ubj"];

const KILLS: usize = 100;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_under_load_lose_duplicate_and_leak_nothing() {
    let started = Arc::new(start(config(2, 2), &SMALL).await);
    let descriptors = open_descriptors();
    let clients = Clients::start(&started);
    for kill in 0..KILLS {
        let restarts = kill as u64;
        signal("-KILL", started.pids()[kill * 7 % 2]);
        started
            .until("a new life", |e| e.stats().worker_restarts_total > restarts)
            .await;
        started
            .until("both up", |e| e.stats().workers_ready == 2)
            .await;
        tokio::time::sleep(Duration::from_micros(kill as u64 % 7 * 700)).await;
    }
    let answers = clients.end().await;
    let stats = started.engine.stats();
    let model = &stats.models[0];
    assert_eq!(
        (model.requests_total, model.answered_total),
        (answers, answers)
    );
    assert_eq!(
        (model.failed_total, stats.worker_restarts_total),
        (0, KILLS as u64)
    );
    assert_eq!(
        (stats.queue_rows, stats.arena_used_bytes, stats.workers_busy),
        (0, 0, 0)
    );
    // Other tests of this process have open descriptors, too; a leak would be at least one per
    // death.
    let now = open_descriptors();
    assert!(
        now <= descriptors + KILLS / 2,
        "{descriptors} descriptors became {now}"
    );
}

/// Many rows, whose interactions take long enough to kill the worker within the batch.
fn long_rows(started: &Started) -> Vec<f32> {
    started.rows(0, 1000, 3)
}

fn interactions() -> KindSet {
    KindSet::only(Kind::Interactions)
}

/// CPU time of the main thread of a process, nanoseconds.
fn running_nanos(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Stops the only worker in the middle of a batch.
pub(crate) async fn stop_while_busy(started: &Started) -> i32 {
    started
        .until("it has a batch", |engine| engine.stats().workers_busy == 1)
        .await;
    let worker = started.pids()[0];
    // On a busy machine the worker may not have started the batch yet, and a crash would not be
    // attributed to the batch.
    let before = running_nanos(worker);
    let is_running = |_: &Engine| running_nanos(worker) > before + 1_000_000;
    started.until("it runs", is_running).await;
    signal("-STOP", worker);
    assert_eq!(
        started.engine.stats().workers_busy,
        1,
        "the batch was over too soon"
    );
    worker
}

pub(crate) async fn kill_while_busy(started: &Started, with: &str, restarts: u64) {
    let worker = stop_while_busy(started).await;
    signal(with, worker);
    // A stopped process handles no signal except for SIGKILL until it is continued.
    signal("-CONT", worker);
    started
        .until("it died", |engine| {
            engine.stats().worker_restarts_total > restarts
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_crashes_two_workers_fails_and_the_next_one_runs() {
    let started = start(config(1, 1), &SLOW).await;
    let call = tokio::spawn(started.submit(0, interactions(), &long_rows(&started)));
    kill_while_busy(&started, "-ABRT", 0).await;
    kill_while_busy(&started, "-ABRT", 1).await;
    let failure = call.await.unwrap().unwrap_err();
    assert_eq!(
        failure,
        RequestFailure::Poisonous {
            crashes: 2,
            cause: "signal 6".to_owned()
        }
    );
    assert!(failure.to_string().contains("signal 6"));
    let rows = started.rows(0, 3, 1);
    let reply = started.submit(0, value(), &rows).await.unwrap();
    assert_eq!(
        reply.output(Kind::Value),
        Some(&started.expected(0, Kind::Value, &rows)[..])
    );
    drop(reply);
    started
        .until("memory comes back", |engine| {
            engine.stats().arena_used_bytes == 0
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_was_killed_from_outside_is_run_again_until_it_is_done() {
    let started = start(config(1, 2), &SLOW).await;
    let rows = long_rows(&started);
    let call = tokio::spawn(started.submit(0, interactions(), &rows));
    for restarts in 0..3 {
        kill_while_busy(&started, "-KILL", restarts).await;
    }
    let reply = call.await.unwrap().unwrap();
    let expected = started.expected(0, Kind::Interactions, &rows);
    assert!(reply.output(Kind::Interactions) == Some(&expected[..]));
    assert_eq!(started.engine.stats().replayed_batches_total, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_requests_are_released_in_the_queue_in_a_batch_and_after_a_worker_death() {
    let started = start(config(1, 1), &SLOW).await;
    let rows = long_rows(&started);
    let running = tokio::spawn(started.submit(0, interactions(), &rows));
    let worker = stop_while_busy(&started).await;
    let waiting = started.submit(0, value(), &rows);
    assert_eq!(started.engine.stats().queue_rows, 1000);
    drop(waiting);
    assert_eq!(started.engine.stats().queue_rows, 0);
    running.abort();
    assert!(running.await.is_err());
    signal("-KILL", worker);
    started
        .until("memory comes back", |engine| {
            engine.stats().arena_used_bytes == 0
        })
        .await;
    started
        .until("it is up", |engine| engine.stats().workers_ready == 1)
        .await;
    let stats = started.engine.stats();
    assert_eq!(
        (
            stats.models[0].abandoned_total,
            stats.replayed_batches_total
        ),
        (2, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_cannot_start_is_an_error_and_leaves_nothing() {
    for (program, words) in [
        ("/bin/false", "exit code 1"),
        ("/no/such/file", "/no/such/file"),
    ] {
        let models = vec![model("m", SMALL[0])];
        let silent = Observer(Box::new(|_| {}));
        let engine = Engine::start(&config(2, 1), Path::new(program), models, silent).unwrap();
        let error = engine.wait_until_ready().await.unwrap_err().to_string();
        assert!(
            error.contains("before it was ready") && error.contains(words),
            "{error}"
        );
        assert!(!engine.is_ready());
    }
}
