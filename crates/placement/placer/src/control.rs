//! Control messages to a running placer from other threads.

use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::time::Duration;

use albacore_os::Wake;
use albacore_plan::Policy;

use crate::{Figures, PlacerError, Restored, Row, SubjectConfig, SubjectId, SubjectState};

/// A control message. Where it has a `reply` channel, the loop sends the reply once the message was
/// handled and never blocks on it: a caller that no longer wants it drops its end.
#[derive(Clone, Debug)]
pub enum Control {
    /// Places this process tree, too.
    Add {
        config: SubjectConfig,
        /// Its id, or why it cannot be placed.
        reply: SyncSender<Result<SubjectId, PlacerError>>,
    },
    /// Sets the policy of a subject.
    SetPolicy(SubjectId, Policy),
    /// Ends the back-offs of a subject: masks that another program keeps changing are written
    /// again.
    RetryNow(SubjectId),
    /// Gives the masks of a subject back and removes it.
    Remove {
        subject: SubjectId,
        /// What was given back; nothing if there is no such subject.
        reply: Option<SyncSender<Restored>>,
    },
    /// Asks for the state of every slot of every subject.
    Table {
        /// As [`crate::Placer::table`].
        reply: SyncSender<Result<Vec<Row>, PlacerError>>,
    },
    /// Asks for the state of every subject as a whole.
    States {
        /// As [`crate::Placer::states`].
        reply: SyncSender<Vec<SubjectState>>,
    },
    /// Asks for counters and distributions.
    Figures {
        /// As [`crate::Placer::figures`].
        reply: SyncSender<Figures>,
    },
    Stop,
}

/// Why a control message was not delivered, or not answered.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ControlError {
    /// The queue is full.
    #[error("the control queue of the placer is full: try again")]
    Full,
    /// The placer is gone.
    #[error("the placer has ended")]
    Ended,
    /// No answer came in the given time.
    #[error("the placer did not answer in time")]
    Late,
}

/// The reply to a control message: comes within some milliseconds usually, and within a solver's
/// budget and the writes of a plan at most.
#[derive(Debug)]
pub struct Pending<T>(Receiver<T>);

impl<T> Pending<T> {
    fn new() -> (SyncSender<T>, Self) {
        let (reply, answer) = sync_channel(1);
        (reply, Self(answer))
    }

    /// Waits for the answer, at most `timeout`. Blocks the calling thread.
    ///
    /// # Errors
    /// The placer is gone, or no answer came in time (it may still come: wait again).
    pub fn wait(&self, timeout: Duration) -> Result<T, ControlError> {
        self.0.recv_timeout(timeout).map_err(|e| match e {
            RecvTimeoutError::Timeout => ControlError::Late,
            RecvTimeoutError::Disconnected => ControlError::Ended,
        })
    }

    /// The answer, if it is there already.
    ///
    /// # Errors
    /// The placer is gone, or there is no answer yet.
    pub fn poll(&self) -> Result<T, ControlError> {
        self.0.try_recv().map_err(|e| match e {
            TryRecvError::Empty => ControlError::Late,
            TryRecvError::Disconnected => ControlError::Ended,
        })
    }
}

/// Sends control messages to one placer; clones send to the same.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) sender: SyncSender<Control>,
    pub(crate) wake: Wake,
}

impl Handle {
    /// Sends a control message and wakes the loop.
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

    /// Adds a process tree.
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn add(
        &self,
        config: SubjectConfig,
    ) -> Result<Pending<Result<SubjectId, PlacerError>>, ControlError> {
        let (reply, pending) = Pending::new();
        self.send(Control::Add { config, reply })?;
        Ok(pending)
    }

    /// Sets the policy of a subject.
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn set_policy(&self, subject: SubjectId, policy: Policy) -> Result<(), ControlError> {
        self.send(Control::SetPolicy(subject, policy))
    }

    /// Ends the back-offs of a subject: masks that another program keeps changing are written
    /// again.
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn retry_now(&self, subject: SubjectId) -> Result<(), ControlError> {
        self.send(Control::RetryNow(subject))
    }

    /// Gives the masks of a subject back and forgets it.
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn remove(&self, subject: SubjectId) -> Result<Pending<Restored>, ControlError> {
        let (reply, pending) = Pending::new();
        let reply = Some(reply);
        self.send(Control::Remove { subject, reply })?;
        Ok(pending)
    }

    /// Asks for the state of every slot.
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn table(&self) -> Result<Pending<Result<Vec<Row>, PlacerError>>, ControlError> {
        let (reply, pending) = Pending::new();
        self.send(Control::Table { reply })?;
        Ok(pending)
    }

    /// Asks for the state of every subject as a whole.
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn states(&self) -> Result<Pending<Vec<SubjectState>>, ControlError> {
        let (reply, pending) = Pending::new();
        self.send(Control::States { reply })?;
        Ok(pending)
    }

    /// Asks for counters and distributions.
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn figures(&self) -> Result<Pending<Figures>, ControlError> {
        let (reply, pending) = Pending::new();
        self.send(Control::Figures { reply })?;
        Ok(pending)
    }

    /// Ends the loop: [`crate::Placer::run`] then gives every mask back and returns.
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn stop(&self) -> Result<(), ControlError> {
        self.send(Control::Stop)
    }
}
