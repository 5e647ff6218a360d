//! API calls that load and unload models (model repository extension), at most one per model at a
//! time.
//!
//! The front sends the call ([`ModelControl`]) and the thread that loads models executes it,
//! between the loads that it starts itself. The result is visible to all requests that follow the
//! reply.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::config_watcher::LoadAttempt;
use crate::limits::MESSAGES_MAX;

/// The action of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelAction {
    /// Fetch and serve the model now, even if it is already served.
    Load,
    /// Stop serving it.
    Unload,
}

/// Why a model was not loaded or unloaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelControlError {
    #[error(
        "model {0:?} is being loaded or unloaded by another call, or too many calls wait: try again \
         later"
    )]
    Busy(String),
    /// The previously served version stays in service.
    #[error("model {name:?} cannot be loaded: {reason}")]
    Failed { name: String, reason: String },
    #[error("model {0:?} was removed from the settings meanwhile, or the server stops")]
    Gone(String),
}

/// Sends load and unload calls.
#[derive(Clone, Debug)]
pub struct ModelControl {
    sender: SyncSender<LoopMessage>,
    /// Models with a call in progress.
    busy: Arc<Mutex<BTreeSet<String>>>,
}

/// A message to the thread that loads models.
#[derive(Debug)]
pub(crate) enum LoopMessage {
    Finished(Box<LoadAttempt>),
    Call(ModelCall),
}

/// The receiving end of a [`ModelControl`], for the thread that loads models.
#[derive(Debug)]
pub struct ModelControlReceiver {
    pub(crate) sender: SyncSender<LoopMessage>,
    pub(crate) receiver: Receiver<LoopMessage>,
}

/// Result of a call.
type ControlResult = Result<(), ModelControlError>;

/// A pending call to load or unload a model.
#[derive(Debug)]
pub(crate) struct ModelCall {
    pub(crate) action: ModelAction,
    /// Number of the attempt that executes it.
    pub(crate) attempt: Option<u64>,
    model_lock: ModelLock,
    reply: oneshot::Sender<ControlResult>,
}

/// Rejects other calls for a model until it is dropped, even if the client does not wait.
#[derive(Debug)]
struct ModelLock {
    name: String,
    busy: Arc<Mutex<BTreeSet<String>>>,
}

impl ModelLock {
    fn new(name: &str, busy: &Arc<Mutex<BTreeSet<String>>>) -> Option<Self> {
        let name = name.to_owned();
        let is_free = lock(busy).insert(name.clone());
        is_free.then(|| Self {
            name,
            busy: Arc::clone(busy),
        })
    }
}

impl Drop for ModelLock {
    fn drop(&mut self) {
        lock(&self.busy).remove(&self.name);
    }
}

fn lock(busy: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    busy.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates both ends. Calls wait until the thread that owns the receiving end runs.
#[must_use]
pub fn model_control() -> (ModelControl, ModelControlReceiver) {
    let (sender, receiver) = sync_channel(MESSAGES_MAX);
    let control = ModelControl {
        sender: sender.clone(),
        busy: Arc::default(),
    };
    (control, ModelControlReceiver { sender, receiver })
}

impl ModelControl {
    /// Loads or unloads a declared model. The operation continues if the future is dropped.
    ///
    /// # Errors
    /// [`ModelControlError`]; the previously served version stays in service.
    pub async fn run(&self, name: &str, action: ModelAction) -> ControlResult {
        let busy = || ModelControlError::Busy(name.to_owned());
        let gone = || ModelControlError::Gone(name.to_owned());
        let (call, outcome) = ModelCall::new(name, action, &self.busy).ok_or_else(busy)?;
        // The channel is full of load results, or the thread has exited.
        let sent = self.sender.try_send(LoopMessage::Call(call));
        sent.map_err(|error| match error {
            std::sync::mpsc::TrySendError::Full(_) => busy(),
            std::sync::mpsc::TrySendError::Disconnected(_) => gone(),
        })?;
        outcome.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl ModelCall {
    /// Returns `None` while another call for the model is in progress.
    pub(crate) fn new(
        name: &str,
        action: ModelAction,
        busy: &Arc<Mutex<BTreeSet<String>>>,
    ) -> Option<(Self, oneshot::Receiver<ControlResult>)> {
        let model_lock = ModelLock::new(name, busy)?;
        let (reply, outcome) = oneshot::channel();
        let call = Self {
            action,
            attempt: None,
            model_lock,
            reply,
        };
        Some((call, outcome))
    }

    pub(crate) fn model(&self) -> &str {
        &self.model_lock.name
    }

    /// Sends the result of the call; then the next call for the model is accepted.
    pub(crate) fn reply(self, result: Result<(), String>) {
        let name = self.model_lock.name.clone();
        drop(self.model_lock);
        let result = result.map_err(|reason| ModelControlError::Failed { name, reason });
        // The client may no longer wait for the reply.
        let _ = self.reply.send(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(receiver: &ModelControlReceiver) -> ModelCall {
        match receiver.receiver.recv().unwrap() {
            LoopMessage::Call(call) => call,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn one_call_for_a_model_runs_at_a_time() {
        let (control, receiver) = model_control();
        let busy = Err(ModelControlError::Busy("a".to_owned()));
        let first = tokio::spawn({
            let control = control.clone();
            async move { control.run("a", ModelAction::Load).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(control.run("a", ModelAction::Unload).await, busy);
        let other = tokio::spawn({
            let control = control.clone();
            async move { control.run("b", ModelAction::Unload).await }
        });
        tokio::task::yield_now().await;
        let (of_a, of_b) = (call(&receiver), call(&receiver));
        assert_eq!((of_a.model(), of_a.action), ("a", ModelAction::Load));
        assert_eq!((of_b.model(), of_b.action), ("b", ModelAction::Unload));
        // The call continues if the client disconnects.
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert_eq!(control.run("a", ModelAction::Load).await, busy);
        of_a.reply(Err("no file".to_owned()));
        of_b.reply(Ok(()));
        assert_eq!(other.await.unwrap(), Ok(()));
        let again = tokio::spawn(async move { control.run("a", ModelAction::Load).await });
        tokio::task::yield_now().await;
        call(&receiver).reply(Err("no file".to_owned()));
        let failed = again.await.unwrap().unwrap_err().to_string();
        assert_eq!(failed, "model \"a\" cannot be loaded: no file");
    }

    #[tokio::test]
    async fn a_call_fails_when_the_thread_exits() {
        let (control, receiver) = model_control();
        let gone = Err(ModelControlError::Gone("a".to_owned()));
        let call = tokio::spawn({
            let control = control.clone();
            async move { control.run("a", ModelAction::Load).await }
        });
        tokio::task::yield_now().await;
        drop(receiver);
        assert_eq!(call.await.unwrap(), gone);
        assert_eq!(control.run("a", ModelAction::Load).await, gone);
    }
}
