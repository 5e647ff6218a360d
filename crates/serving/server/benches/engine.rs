//! The engine without a protocol: `cargo bench -p albacore-server --bench engine`. Measures single
//! calls from reserve and submit through a worker to the reply, starts, and respawns after SIGKILL.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use albacore_batching::Policy;
use albacore_engine::{
    BatchingParams, ElementType, Engine, EngineConfig, EngineEvent, Iterations, Kind, KindSet,
    LoadedModel, Observer,
};

/// Calls that warm up the caches and the cpuidle governor of the kernel.
const WARM_UP: usize = 2_000;

/// Measured calls.
const MEASURED: usize = 20_000;

/// Workers that are killed, one at a time.
const KILLS: usize = 50;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return; // `cargo test` builds and runs benchmarks, too
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::spawn(roundtrip("main_small_d6.ubj", 1, 1))
            .await
            .unwrap();
        tokio::spawn(roundtrip("main_small_d6.ubj", 1, 100))
            .await
            .unwrap();
        tokio::spawn(roundtrip("main_small_d6.ubj", 2, 100))
            .await
            .unwrap();
        tokio::spawn(respawns()).await.unwrap();
    });
}

/// The worker binary.
const PROGRAM: &str = env!("CARGO_BIN_EXE_albacore-server");

fn load(file: &str) -> Vec<LoadedModel> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../tests/data/models")
        .join(file);
    let bytes = std::fs::read(path).unwrap();
    vec![LoadedModel::compile("m", &bytes, Iterations::All).unwrap()]
}

fn config(workers: usize, threads: usize) -> EngineConfig {
    EngineConfig {
        workers,
        threads,
        cpus_max: None,
        batching: BatchingParams {
            policy: Policy::default(),
            batch_rows_max: 1024,
            window: None,
            queue_rows_max: 65536,
        },
        front: 0,
    }
}

async fn roundtrip(file: &str, threads: usize, rows: usize) {
    let silent = Observer(Box::new(|_| {}));
    let start = Instant::now();
    let engine =
        Engine::start(&config(1, threads), Path::new(PROGRAM), load(file), silent).unwrap();
    engine.wait_until_ready().await.unwrap();
    let started = start.elapsed();
    let mut times = Vec::with_capacity(MEASURED);
    let mut compute = Duration::ZERO;
    for call in 0..WARM_UP + MEASURED {
        let start = Instant::now();
        let kinds = KindSet::only(Kind::Value);
        let model = engine.model("m").unwrap();
        let mut room = model.reserve(rows, ElementType::F32, kinds).unwrap();
        room.input_mut().fill(0);
        let reply = room.submit().await.unwrap();
        std::hint::black_box(reply.output(Kind::Value));
        if call >= WARM_UP {
            times.push(start.elapsed());
            compute += reply.timing().compute;
        }
    }
    let compute = compute / MEASURED as u32;
    let name = format!("{file} W=1 T={threads} {rows} rows");
    println!(
        "{name}: started in {started:.1?}, compute mean {compute:.1?}, {}",
        quantiles(times)
    );
    engine.stop(Duration::from_secs(10)).await;
}

async fn respawns() {
    let (sender, events) = mpsc::channel();
    let observer = Observer(Box::new(move |event| {
        drop(sender.send((Instant::now(), event)))
    }));
    let start = Instant::now();
    let engine = Engine::start(
        &config(4, 2),
        Path::new(PROGRAM),
        load("main_small_d6.ubj"),
        observer,
    )
    .unwrap();
    engine.wait_until_ready().await.unwrap();
    println!(
        "W=4 T=2: all workers ready {:.1?} after the start",
        start.elapsed()
    );
    let (mut born, mut ready) = (Vec::new(), Vec::new());
    let mut pid = 0;
    for _ in 0..KILLS {
        while let Ok((_, event)) = events.try_recv() {
            if let EngineEvent::WorkerStarted { pid: started, .. } = event {
                pid = started;
            }
        }
        let killed = Instant::now();
        let status = std::process::Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status();
        assert!(status.unwrap().success());
        let at = loop {
            if let (at, EngineEvent::WorkerStarted { pid: started, .. }) = events.recv().unwrap() {
                pid = started;
                break at;
            }
        };
        while engine.stats().workers_ready < 4 {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        born.push(at.duration_since(killed));
        ready.push(killed.elapsed());
    }
    println!(
        "SIGKILL (kill(1) included) to the next life started: {}",
        quantiles(born)
    );
    println!(
        "SIGKILL (kill(1) included) to the next life ready: {}",
        quantiles(ready)
    );
    engine.stop(Duration::from_secs(10)).await;
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    format!(
        "p50 {:.1?}, p90 {:.1?}, p99 {:.1?}",
        at(0.5),
        at(0.9),
        at(0.99)
    )
}
