//! Scaling of the front end with the number of event loops: `cargo bench -p albacore-server --bench
//! serial_section`. Loops submit requests of one row without a protocol. Prints the rate, the CPU
//! time of the front per request, and the hold time per request of each lock that another thread
//! may wait for: the state of the scheduler, which only one loop can use at a time; the inboxes,
//! the memory and the tallies of answers, which are private to a loop almost all of the time.
//! Admission is lock-free.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use albacore_batching::Policy;
use albacore_engine::{
    BatchingParams, ElementType, Engine, EngineConfig, EventLoop, FlushHandle, Iterations, Kind,
    KindSet, LoadedModel, LockTimes, LoopIndex, Observer,
};
use albacore_os::Clock;
use albacore_supervision::WorkerHost;
use tokio::runtime::Runtime;

/// Requests in flight per loop.
const IN_FLIGHT: usize = 32;

const MEASURED: Duration = Duration::from_secs(3);

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return; // `cargo test` builds and runs benchmarks, too
    }
    println!("one row of main_small_d6, W=2 T=1, {IN_FLIGHT} requests in flight for each loop");
    for loops in [1, 2, 4, 8] {
        measure(loops);
    }
}

fn load() -> Vec<LoadedModel> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/models/main_small_d6.ubj");
    let bytes = std::fs::read(path).unwrap();
    vec![LoadedModel::compile("m", &bytes, Iterations::All).unwrap()]
}

/// A runtime that flushes before it sleeps, like the event loops of the server.
fn runtime(flush: Arc<std::sync::OnceLock<FlushHandle>>) -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || flush.get().into_iter().for_each(FlushHandle::flush))
        .enable_all()
        .build()
        .unwrap()
}

fn measure(loops: usize) {
    let flushes: Vec<_> = (0..loops).map(|_| Arc::default()).collect();
    let runtimes: Vec<Runtime> = flushes.iter().map(|it| runtime(Arc::clone(it))).collect();
    let event_loops: Vec<_> = runtimes
        .iter()
        .map(|runtime| EventLoop {
            runtime: runtime.handle().clone(),
            thread: None,
        })
        .collect();
    let config = EngineConfig {
        workers: 2,
        threads: 1,
        cpus_max: None,
        batching: BatchingParams {
            policy: Policy::Eager,
            batch_rows_max: 1024,
            queue_rows_max: 65536,
            window: None,
        },
        front: 0,
    };
    let silent = Observer(Box::new(|_| {}));
    let workers = WorkerHost::on_thread(Path::new(env!("CARGO_BIN_EXE_albacore-server"))).unwrap();
    let engine = Engine::start_on(&config, load(), silent, &event_loops, workers).unwrap();
    let engine = Arc::new(engine);
    for (flush, handle) in flushes.iter().zip(engine.flush_handles()) {
        flush.get_or_init(|| handle);
    }
    let (is_over, answered) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let threads: Vec<_> = runtimes
        .into_iter()
        .enumerate()
        .map(|(index, runtime)| {
            let (engine, is_over) = (Arc::clone(&engine), Arc::clone(&is_over));
            let answered = Arc::clone(&answered);
            std::thread::spawn(move || {
                runtime.block_on(submit_until(&engine, LoopIndex(index), &is_over, &answered));
            })
        })
        .collect();
    let clock = Clock::new().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let before = (lock_nanos(&engine), answered.load(Ordering::Relaxed));
    let (cpu, start) = (clock.process_cpu().unwrap().0, Instant::now());
    std::thread::sleep(MEASURED);
    let requests = (answered.load(Ordering::Relaxed) - before.1) as f64;
    let cpu = (clock.process_cpu().unwrap().0 - cpu) as f64;
    let now = lock_nanos(&engine);
    let held: Vec<f64> = (0..now.len())
        .map(|lock| (now[lock] - before.0[lock]) / requests)
        .collect();
    println!(
        "{loops} loops: {:7.0} requests/s, {:5.2} us of cpu a request, locks held {:4.0} ns a request: \
         state {:3.0}, inboxes {:3.0}, memory {:3.0}, tallies {:3.0}",
        requests / start.elapsed().as_secs_f64(),
        cpu / requests,
        held.iter().sum::<f64>(),
        held[0],
        held[1],
        held[2],
        held[3],
    );
    is_over.store(true, Ordering::Relaxed);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Total hold times of the locks of the state, the inboxes, the memory and the tallies.
fn lock_nanos(engine: &Engine) -> [f64; 4] {
    let LockTimes {
        state,
        inboxes,
        memory,
        tallies,
    } = engine.stats().locked;
    [state, inboxes, memory, tallies].map(|held| held.as_secs_f64() * 1e9)
}

async fn submit_until(
    engine: &Arc<Engine>,
    event_loop: LoopIndex,
    is_over: &Arc<AtomicBool>,
    answered: &Arc<AtomicU64>,
) {
    engine.wait_until_ready().await.unwrap();
    let clients: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (engine, is_over) = (Arc::clone(engine), Arc::clone(is_over));
            let answered = Arc::clone(answered);
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let model = engine.model_on(event_loop, "m").unwrap();
                    model.admit_early().unwrap();
                    let kinds = KindSet::only(Kind::Value);
                    let mut rows = model.reserve(1, ElementType::F32, kinds).unwrap();
                    rows.input_mut().fill(0);
                    let reply = rows.submit().await.unwrap();
                    std::hint::black_box(reply.output(Kind::Value));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
}
