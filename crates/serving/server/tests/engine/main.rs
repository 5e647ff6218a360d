//! The engine with real worker processes: correct results, exits of workers, limits, and cleanup.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod bounds;
mod clients;
mod coalescing;
mod exits;
mod hangs;
mod isolation;
mod objectives;
mod processes;
mod results;
#[path = "../running/mod.rs"]
mod running;
mod sharing;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use albacore_batching::Policy;
use albacore_engine::{
    BatchingParams, ElementType, Engine, EngineConfig, EngineEvent, FlushHandle, Iterations, Kind,
    KindSet, LoadedModel, ModelHandle, Observer, Prefer, Refusal, Reply, RequestFailure,
    Reservation,
};
use albacore_trees::{Image, Model, OutputMut, PredictScratch, Predictor, Rows};

pub(crate) use running::{PATIENCE, zoo};

/// A started engine and its events.
pub(crate) struct Started {
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<Mutex<Vec<EngineEvent>>>,
    /// Compiled images of the models, for predictions in the test.
    images: Vec<Image>,
}

pub(crate) const BATCHING: BatchingParams = BatchingParams {
    policy: Policy::Auto(Prefer::ShortWaits),
    batch_rows_max: 1024,
    window: None,
    queue_rows_max: 65536,
};

/// The worker binary.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_albacore-server");

pub(crate) fn config(workers: usize, threads: usize) -> EngineConfig {
    EngineConfig {
        workers,
        threads,
        cpus_max: None,
        batching: BATCHING,
        front: 0,
    }
}

pub(crate) fn model(name: &str, file: &str) -> LoadedModel {
    LoadedModel::compile(name, &std::fs::read(zoo(file)).unwrap(), Iterations::All).unwrap()
}

pub(crate) async fn start(config: EngineConfig, files: &[&str]) -> Started {
    let read = |file: &&str| ((*file).to_owned(), std::fs::read(zoo(file)).unwrap());
    start_with(config, files.iter().map(read).collect()).await
}

/// Starts an engine with models given by name and file content.
pub(crate) async fn start_with(config: EngineConfig, files: Vec<(String, Vec<u8>)>) -> Started {
    let load = |(name, bytes): &(String, Vec<u8>)| {
        LoadedModel::compile(name, bytes, Iterations::All).unwrap()
    };
    let models: Vec<_> = files.iter().map(load).collect();
    let compile = |(_, bytes): &(String, Vec<u8>)| Image::compile(&Model::parse(bytes).unwrap());
    let images = files.iter().map(compile).collect();
    let events = Arc::new(Mutex::new(Vec::new()));
    let observer = Observer(Box::new({
        let events = Arc::clone(&events);
        move |event| events.lock().unwrap().push(event)
    }));
    let engine = Arc::new(Engine::start(&config, Path::new(PROGRAM), models, observer).unwrap());
    engine.wait_until_ready().await.unwrap();
    assert!(engine.is_ready());
    Started {
        engine,
        events,
        images,
    }
}

impl Started {
    /// Process IDs of the current workers.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let events = self.events.lock().unwrap();
        let mut pids = vec![0; self.engine.stats().workers];
        for event in events.iter() {
            if let EngineEvent::WorkerStarted { worker, pid } = event {
                pids[*worker] = *pid;
            }
        }
        pids
    }

    /// The current revision of the model with this index.
    pub(crate) fn model(&self, model: usize) -> ModelHandle {
        self.engine.model(&self.engine.names()[model]).unwrap()
    }

    pub(crate) fn reserve(
        &self,
        model: usize,
        rows: usize,
        element: ElementType,
        kinds: KindSet,
    ) -> Result<Reservation, Refusal> {
        self.model(model).reserve(rows, element, kinds)
    }

    /// The result of the model, predicted in this process.
    pub(crate) fn expected(&self, model: usize, kind: Kind, rows: &[f32]) -> Vec<u8> {
        let predictor = Predictor::open(self.images[model].bytes()).unwrap();
        let count = rows.len() / predictor.features();
        let values = count * predictor.output_width(kind);
        let mut scratch = PredictScratch::default();
        let mut predict = |out| {
            predictor
                .predict(kind, Rows::F32(rows), out, &mut scratch)
                .unwrap()
        };
        match predictor.output_element(kind) {
            ElementType::F32 => {
                let mut out = vec![0.0_f32; values];
                predict(OutputMut::F32(&mut out));
                out.iter().flat_map(|value| value.to_le_bytes()).collect()
            }
            ElementType::F64 => {
                let mut out = vec![0.0_f64; values];
                predict(OutputMut::F64(&mut out));
                out.iter().flat_map(|value| value.to_le_bytes()).collect()
            }
            ElementType::I32 => {
                let mut out = vec![0_i32; values];
                predict(OutputMut::I32(&mut out));
                out.iter().flat_map(|value| value.to_le_bytes()).collect()
            }
        }
    }

    /// `count` rows of pseudorandom numbers, some of them missing.
    pub(crate) fn rows(&self, model: usize, count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if state.is_multiple_of(11) {
                f32::NAN
            } else {
                (state % 2000) as f32 / 500.0 - 2.0
            }
        };
        (0..count * self.model(model).info().features)
            .map(|_| next())
            .collect()
    }

    pub(crate) fn submit(
        &self,
        model: usize,
        kinds: KindSet,
        rows: &[f32],
    ) -> impl Future<Output = Result<Reply, RequestFailure>> + Send + 'static {
        let count = rows.len() / self.model(model).info().features;
        let reserved = self.reserve(model, count, ElementType::F32, kinds);
        let mut reservation = reserved.unwrap();
        let bytes: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
        reservation.input_mut().copy_from_slice(&bytes);
        reservation.submit()
    }

    /// Waits until `is_so`.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Engine) -> bool) {
        let start = Instant::now();
        while !is_so(&self.engine) {
            assert!(
                start.elapsed() < PATIENCE,
                "never: {what}: {:?}",
                self.engine.stats()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

pub(crate) fn value() -> KindSet {
    KindSet::only(Kind::Value)
}

pub(crate) fn signal(signal: &str, pid: i32) {
    let status = std::process::Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    // Fails if the process is gone, because something else has killed it.
    status.unwrap();
}

pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}
