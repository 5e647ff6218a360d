//! Graceful shutdown of a program, triggered by a signal or by a task that cannot continue, and
//! observed by all tasks.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

#[derive(Clone, Debug, PartialEq, Eq)]
enum ShutdownState {
    Running,
    /// Triggered by a signal or by a caller.
    Requested,
    /// Triggered by a task that cannot continue.
    Failed(String),
}

/// A cancellation token that all tasks observe. Clones share it.
#[derive(Clone, Debug)]
pub struct Shutdown {
    state: Arc<watch::Sender<ShutdownState>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    /// Creates a token that only its holders trigger.
    pub fn new() -> Self {
        let state = Arc::new(watch::Sender::new(ShutdownState::Running));
        Self { state }
    }

    /// Creates a token that SIGTERM and SIGINT trigger. Requires a tokio runtime.
    ///
    /// # Errors
    /// The signal handlers cannot be installed.
    pub fn on_signals() -> io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = Self::new();
        let token = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping: received a signal");
            token.trigger();
        });
        Ok(shutdown)
    }

    /// Triggers the shutdown of all tasks.
    pub fn trigger(&self) {
        self.set(ShutdownState::Requested);
    }

    /// Triggers the shutdown of all tasks because of `reason`. The first reason is kept.
    pub fn fail(&self, reason: impl Into<String>) {
        let reason = reason.into();
        tracing::error!(reason, "stopping: a part of the program failed");
        self.set(ShutdownState::Failed(reason));
    }

    fn set(&self, next: ShutdownState) {
        self.state.send_if_modified(|state| {
            let is_first = *state == ShutdownState::Running;
            if is_first {
                *state = next;
            }
            is_first
        });
    }

    /// Whether a shutdown was triggered.
    pub fn is_triggered(&self) -> bool {
        *self.state.borrow() != ShutdownState::Running
    }

    /// The reason why the program cannot continue; `None` while it runs and after a graceful
    /// shutdown.
    pub fn failure(&self) -> Option<String> {
        match &*self.state.borrow() {
            ShutdownState::Failed(reason) => Some(reason.clone()),
            ShutdownState::Running | ShutdownState::Requested => None,
        }
    }

    /// Waits until a shutdown is triggered.
    pub async fn triggered(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`, so this cannot fail.
        let _ = state
            .wait_for(|state| *state != ShutdownState::Running)
            .await;
    }

    /// Runs `task` until it ends or a shutdown is triggered. A panic of the task shuts down the
    /// program; otherwise its work would silently stop.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let token = self.clone();
        tokio::spawn(async move {
            let mut running = tokio::spawn(task);
            tokio::select! {
                ended = &mut running => {
                    if let Err(error) = ended {
                        token.fail(format!("task {name}: {error}"));
                    }
                }
                () = token.triggered() => running.abort(),
            }
        });
    }

    /// Runs `task` until it ends or the runtime is dropped, for tasks that have to finish work
    /// after a shutdown is triggered. A panic of the task shuts down the program.
    pub fn spawn_until_runtime_drop(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let token = self.clone();
        tokio::spawn(async move {
            if let Err(error) = tokio::spawn(task).await {
                token.fail(format!("task {name}: {error}"));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_stops_the_program() {
        let shutdown = Shutdown::new();
        shutdown.spawn("faulty", async { panic!("on purpose") });
        shutdown.triggered().await;
        let failure = shutdown.failure().unwrap();
        assert!(failure.starts_with("task faulty: "), "{failure}");
    }

    #[tokio::test]
    async fn the_first_reason_stays_and_tasks_end() {
        let shutdown = Shutdown::new();
        let (alive, mut ended) = tokio::sync::mpsc::channel::<()>(1);
        shutdown.spawn("endless", async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        assert!(!shutdown.is_triggered());
        shutdown.trigger();
        shutdown.fail("too late");
        assert_eq!(ended.recv().await, None);
        assert_eq!(shutdown.failure(), None);
    }
}
