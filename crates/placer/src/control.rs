//! Orders to a running placer from other threads.

use std::sync::mpsc::{SyncSender, TrySendError};

use albacore_os::Wake;
use albacore_plan::Policy;

use crate::SubjectId;

/// An order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    /// From now on this policy holds for a subject.
    SetPolicy(SubjectId, Policy),
    /// Give the masks of a subject back and forget it.
    Remove(SubjectId),
    /// End the loop.
    Stop,
}

/// Why an order did not arrive.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ControlError {
    /// Too many orders wait.
    #[error("the placer has too many orders waiting: try again")]
    Full,
    /// The placer is gone.
    #[error("the placer has ended")]
    Ended,
}

/// Gives orders to one placer; clones give orders to the same.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) sender: SyncSender<Control>,
    pub(crate) wake: Wake,
}

impl Handle {
    /// Sends an order and wakes the loop.
    ///
    /// # Errors
    /// The placer is gone, or does not keep up.
    pub fn send(&self, control: Control) -> Result<(), ControlError> {
        let sent = self.sender.try_send(control).map_err(|e| match e {
            TrySendError::Full(_) => ControlError::Full,
            TrySendError::Disconnected(_) => ControlError::Ended,
        });
        self.wake.wake();
        sent
    }

    /// Sets the policy of a subject.
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn set_policy(&self, subject: SubjectId, policy: Policy) -> Result<(), ControlError> {
        self.send(Control::SetPolicy(subject, policy))
    }

    /// Ends the loop: [`crate::Placer::run`] then gives every mask back and returns.
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn stop(&self) -> Result<(), ControlError> {
        self.send(Control::Stop)
    }
}
