//! Small requests that arrive together share a batch; large requests do not wait for others.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const SMALL: [&str; 1] = ["main_small_d6.ubj"];

/// Number of batches after which the cost of a row is learned.
const LEARNING_BATCHES: usize = 8;

/// Submits concurrent calls of `rows`; returns the number of their batches.
async fn count_batches(started: &Started, kinds: KindSet, (calls, rows): (usize, &[f32])) -> u64 {
    for _ in 0..LEARNING_BATCHES {
        started.submit(0, kinds, rows).await.unwrap();
    }
    let before = started.engine.stats().models[0].batches_total;
    let calls: Vec<_> = (0..calls).map(|_| started.submit(0, kinds, rows)).collect();
    for call in calls {
        call.await.unwrap();
    }
    started.engine.stats().models[0].batches_total - before
}

/// The flush handle of the only event loop.
fn flush_handle(started: &Started) -> FlushHandle {
    started.engine.flush_handles().remove(0)
}

/// Simulates an event loop that flushes its requests each time before it sleeps, until this value
/// is dropped.
struct PeriodicFlush {
    is_running: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl PeriodicFlush {
    fn start(flush_handle: FlushHandle) -> Self {
        let is_running = Arc::new(AtomicBool::new(true));
        let keep_running = Arc::clone(&is_running);
        let thread = std::thread::spawn(move || {
            while keep_running.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
                flush_handle.flush();
            }
        });
        Self {
            is_running,
            thread: Some(thread),
        }
    }
}

impl Drop for PeriodicFlush {
    fn drop(&mut self) {
        self.is_running.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_small_requests_share_a_batch() {
    let started = start(config(4, 1), &SMALL).await;
    let row = started.rows(0, 1, 1);
    let _flush = PeriodicFlush::start(flush_handle(&started));
    // Without coalescing each of the four would run on its own worker. On a busy machine they may
    // be separated, or the learned cost of a row may be too high; later batches correct it.
    let start_time = Instant::now();
    while count_batches(&started, value(), (4, &row)).await == 4 {
        assert!(start_time.elapsed() < PATIENCE, "they never share a batch");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expensive_requests_are_not_coalesced() {
    let started = start(config(4, 1), &SMALL).await;
    let rows = started.rows(0, 200, 1);
    let _flush = PeriodicFlush::start(flush_handle(&started));
    let kinds = KindSet::only(Kind::Interactions);
    assert_eq!(count_batches(&started, kinds, (4, &rows)).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unflushed_requests_are_dispatched_by_the_next_poll() {
    let started = start(config(1, 1), &SMALL).await;
    let row = started.rows(0, 1, 1);
    let _flush_handle = flush_handle(&started);
    for _ in 0..LEARNING_BATCHES {
        let reply = tokio::time::timeout(PATIENCE, started.submit(0, value(), &row)).await;
        reply.unwrap().unwrap();
    }
}
