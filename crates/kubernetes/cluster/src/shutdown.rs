//! Shutdown of a program, requested by a signal or by a task that cannot go on, and seen by all
//! tasks.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

#[derive(Clone, Debug, PartialEq, Eq)]
enum ShutdownState {
    Running,
    /// Requested by a signal or by a caller.
    Requested,
    /// A task cannot go on.
    Failed(String),
}

/// A token that every task watches. Clones are the same token.
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
    /// A token that only its holders trigger.
    pub fn new() -> Self {
        let state = Arc::new(watch::Sender::new(ShutdownState::Running));
        Self { state }
    }

    /// A token that SIGTERM and SIGINT trigger. Needs a tokio runtime.
    ///
    /// # Errors
    /// The signals cannot be caught.
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
            tracing::info!("stopping: a signal asks for it");
            token.trigger();
        });
        Ok(shutdown)
    }

    /// Requests that all tasks stop.
    pub fn trigger(&self) {
        self.set(ShutdownState::Requested);
    }

    /// Requests that all tasks stop because of `reason`. The first reason is kept.
    pub fn fail(&self, reason: impl Into<String>) {
        let reason = reason.into();
        tracing::error!(reason, "stopping: a part of the program cannot go on");
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

    /// Whether a stop was requested.
    pub fn is_triggered(&self) -> bool {
        *self.state.borrow() != ShutdownState::Running
    }

    /// Why the program cannot go on; `None` while it runs and after an orderly stop.
    pub fn failure(&self) -> Option<String> {
        match &*self.state.borrow() {
            ShutdownState::Failed(reason) => Some(reason.clone()),
            ShutdownState::Running | ShutdownState::Requested => None,
        }
    }

    /// Returns when a stop is requested.
    pub async fn triggered(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`, so this cannot fail.
        let _ = state
            .wait_for(|state| *state != ShutdownState::Running)
            .await;
    }

    /// Runs `task` until it ends or a stop is requested. A task that panics stops the program:
    /// otherwise its work would silently not be done any more.
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

    /// Runs `task` until it ends or the runtime does: for tasks that have work left after a stop is
    /// requested. A task that panics stops the program.
    pub fn spawn_to_the_end(
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
