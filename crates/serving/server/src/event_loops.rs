//! The threads of the front end: each runs one event loop with connections of its own.

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use albacore_engine::{EventLoop, FlushHandle};
use anyhow::Context as _;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// The event loops; dropping them ends their threads and everything that runs on them.
pub(crate) struct EventLoops(Vec<LoopThread>);

struct LoopThread {
    handle: EventLoop,
    flush_handle: Arc<OnceLock<FlushHandle>>,
    /// Ends the loop when it is dropped.
    running: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EventLoops {
    /// Starts so many event loops.
    pub(crate) fn start(loops: usize) -> anyhow::Result<Self> {
        (0..loops).map(LoopThread::start).collect()
    }

    pub(crate) fn handles(&self) -> Vec<EventLoop> {
        self.0.iter().map(|it| it.handle.clone()).collect()
    }

    /// From now on each loop flushes requests that it has submitted before it sleeps.
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
                // A worker occupies its cpu for milliseconds: an event loop on the same cpu should
                // preempt it soon.
                albacore_os::shorten_slice();
                // The receiver waits for this.
                let _ = started.send(albacore_os::current_thread());
                // The sender is dropped, nothing is sent.
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
