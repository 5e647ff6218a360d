//! One attempt to load a model, on a thread of its own: fetch, compile, bring to the workers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use albacore_settings as settings;
use albacore_settings::{Digest, Source};
use albacore_storage::{Fetched, Storage};

use super::stamp::{Stamp, stamp};
use crate::fixed::report;
use albacore_engine::{Engine, InstallError, Iterations, LoadedModel};

/// What loaders share.
#[derive(Debug)]
pub(super) struct Loading {
    pub(super) engine: Arc<Engine>,
    pub(super) storage: Storage,
    pub(super) runtime: tokio::runtime::Handle,
    /// Held from compiling to installing: compiled models take memory, and the one that begins
    /// later is also installed later.
    pub(super) turn: Mutex<()>,
}

/// What is to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) sha256: Option<Digest>,
    pub(super) iterations: Option<settings::Iterations>,
}

/// What is served: the digest of its file, and the iterations that were asked for.
pub(super) type Served = (Digest, Option<settings::Iterations>);

/// What became of an attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Its number; an attempt that is not waited for any more is not heard.
    pub(super) number: u64,
    pub(super) order: Order,
    /// The file before it was read; `None` of a URL.
    pub(super) stamp: Option<Stamp>,
    /// What is served now, or why it is not.
    pub(super) outcome: Result<Digest, String>,
}

/// The file of an order, if it is one of the disk.
pub(super) fn stamp_of(source: &Source) -> Option<Stamp> {
    match source {
        Source::Path(path) => stamp(Path::new(path)),
        Source::Url(_) => None,
    }
}

/// Starts an attempt; its outcome comes through `done`. The same bytes with the same iterations as
/// what is `served` are not installed again.
pub(super) fn start(
    loading: &Arc<Loading>,
    (number, order): (u64, Order),
    served: Option<Served>,
    is_wanted: Arc<AtomicBool>,
    done: SyncSender<Attempt>,
) -> std::io::Result<()> {
    let loading = Arc::clone(loading);
    let attempt = move || {
        // Before reading: a change while it is read is seen as one afterwards.
        let stamp = stamp_of(&order.source);
        let outcome = load(&loading, &order, served, &is_wanted);
        // The receiver is gone once the server stops.
        let _ = done.send(Attempt {
            number,
            order,
            stamp,
            outcome,
        });
    };
    let thread = std::thread::Builder::new().name("albf.load".to_owned());
    thread.spawn(attempt).map(drop)
}

fn load(
    loading: &Loading,
    order: &Order,
    served: Option<Served>,
    is_wanted: &AtomicBool,
) -> Result<Digest, String> {
    let is_wanted = || is_wanted.load(Ordering::Relaxed);
    let fetched = loading
        .storage
        .fetch(&order.source, order.sha256, &is_wanted)
        .map_err(|error| error.to_string())?;
    if Some((fetched.sha256, order.iterations)) == served {
        return Ok(fetched.sha256);
    }
    let _turn = loading.turn.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_wanted() {
        return Err("it is not wanted any more".to_owned());
    }
    install(loading, order, fetched).map_err(|problem| {
        let place = albacore_storage::shown(&order.source);
        format!("{place}: {problem}")
    })
}

fn install(loading: &Loading, order: &Order, fetched: Fetched) -> Result<Digest, String> {
    let iterations = iterations_of(order.iterations);
    let model = LoadedModel::compile(&order.name, &fetched.bytes, iterations)?;
    report(model.info());
    let digest = fetched.sha256;
    drop(fetched);
    let installed = loading.runtime.block_on(loading.engine.install(model));
    installed.map_err(|error: InstallError| error.to_string())?;
    Ok(digest)
}

fn iterations_of(wanted: Option<settings::Iterations>) -> Iterations {
    match wanted {
        None => Iterations::AsSaved,
        Some(settings::Iterations::All) => Iterations::All,
        Some(settings::Iterations::Best) => Iterations::Best,
        Some(settings::Iterations::Range { begin, end }) => Iterations::Range {
            begin: begin as usize,
            end: end as usize,
        },
    }
}
