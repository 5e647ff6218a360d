//! Threads of the front end: each runs one event loop (a single-threaded tokio runtime) with its
//! own connections.

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use albacore_engine::{EventLoop, FlushHandle};
use anyhow::Context as _;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// The event loops. On drop, their threads and all their tasks end.
pub(crate) struct EventLoops(Vec<LoopThread>);

struct LoopThread {
    handle: EventLoop,
    flush_handle: Arc<OnceLock<FlushHandle>>,
    /// Ends the loop on drop.
    running: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EventLoops {
    /// Starts this number of event loops.
    pub(crate) fn start(loops: usize) -> anyhow::Result<Self> {
        (0..loops).map(LoopThread::start).collect()
    }

    pub(crate) fn handles(&self) -> Vec<EventLoop> {
        self.0.iter().map(|it| it.handle.clone()).collect()
    }

    /// Sets the handle with which each loop flushes its submitted requests before it sleeps.
    pub(crate) fn flush_with(&self, handles: Vec<FlushHandle>) {
        for (event_loop, handle) in self.0.iter().zip(handles) {
            event_loop.flush_handle.get_or_init(|| handle);
        }
    }
}

impl FromIterator<LoopThread> for EventLoops {
    fn from_iter<I: IntoIterator<Item = LoopThread>>(loops: I) -> Self {
        Self(loops.into_iter().collect())
    }
}

impl LoopThread {
    fn start(index: usize) -> anyhow::Result<Self> {
        let flush_handle = Arc::new(OnceLock::<FlushHandle>::new());
        let flushing = Arc::clone(&flush_handle);
        let runtime = Builder::new_current_thread()
            .on_thread_park(move || {
                if let Some(handle) = flushing.get() {
                    handle.flush();
                }
            })
            .enable_all()
            .build()
            .context("an event loop cannot be created")?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel();
        let (started, thread_id) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("albf.io{index}"))
            .spawn(move || {
                // A worker occupies its CPU for milliseconds, and an event loop on the same CPU
                // should preempt it soon.
                albacore_os::shorten_time_slice();
                // Cannot fail, because the receiver waits for this message.
                let _ = started.send(albacore_os::current_thread());
                // Ends when the sender is dropped; nothing is sent.
                let _ = runtime.block_on(ended);
            })
            .context("a thread of the front end cannot be started")?;
        let thread_id = thread_id.recv();
        Ok(Self {
            handle: EventLoop {
                runtime: handle,
                thread: thread_id.ok(),
            },
            flush_handle,
            running: Some(running),
            thread: Some(thread),
        })
    }
}

impl Drop for LoopThread {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of the front end had failed");
        }
    }
}
