//! Wakes the reconcile loop from other threads and tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Wakes the loop; clones wake the same loop.
#[derive(Clone, Debug)]
pub(crate) struct LoopWaker {
    sender: SyncSender<()>,
    is_cluster_changed: Arc<AtomicBool>,
}

/// Receiver on which the loop waits.
#[derive(Debug)]
pub(crate) struct WakeReceiver {
    receiver: Receiver<()>,
    is_cluster_changed: Arc<AtomicBool>,
}

pub(crate) fn waker() -> (LoopWaker, WakeReceiver) {
    // Pending wake-ups are coalesced into one.
    let (sender, receiver) = sync_channel(1);
    let is_cluster_changed = Arc::new(AtomicBool::new(true));
    let waker = LoopWaker {
        sender,
        is_cluster_changed: is_cluster_changed.clone(),
    };
    let receiver = WakeReceiver {
        receiver,
        is_cluster_changed,
    };
    (waker, receiver)
}

impl LoopWaker {
    /// Wakes the loop for a reason other than a change in the API server.
    pub(crate) fn wake(&self) {
        // Full: a wake-up is already pending. Disconnected: the program exits.
        let _ = self.sender.try_send(());
    }

    /// Wakes the loop because of a change in the API server.
    pub(crate) fn wake_for_cluster(&self) {
        self.is_cluster_changed.store(true, Ordering::Release);
        self.wake();
    }
}

impl WakeReceiver {
    /// Waits for a wake-up for at most `time`; returns false if all wakers were dropped.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        self.receiver.recv_timeout(time) != Err(RecvTimeoutError::Disconnected)
    }

    /// Whether something changed in the API server since the last call.
    pub(crate) fn take_cluster_change(&self) -> bool {
        self.is_cluster_changed.swap(false, Ordering::AcqRel)
    }
}
