//! Control messages from other threads to a running placer.

use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::time::Duration;

use albacore_os::Waker;
use albacore_plan::SubjectPolicy;
use albacore_topology::Topology;

use crate::{
    Placer, PlacerCounters, PlacerError, Report, RestoreSummary, SlotRow, SubjectConfig, SubjectId,
    SubjectState,
};

/// A closure that the loop runs for another thread between two passes. Replying never blocks the
/// loop: a caller that no longer needs the reply drops its receiver.
pub(crate) type ControlRequest = Box<dyn FnOnce(&mut Placer, &mut dyn FnMut(&Report)) + Send>;

/// Reason why a control message was not delivered or not answered.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ControlError {
    /// The queue is full.
    #[error("the control queue of the placer is full: try again")]
    Full,
    /// The placer has ended.
    #[error("the placer has ended")]
    Ended,
    /// The reply did not arrive within the timeout.
    #[error("timed out waiting for the placer")]
    Late,
}

/// Reply to a control message. It usually arrives within milliseconds, at most after the solver's
/// budget and the writes of a plan.
#[derive(Debug)]
pub struct ControlReply<T>(Receiver<T>);

impl<T> ControlReply<T> {
    /// Waits at most `timeout` for the reply. Blocks the calling thread.
    ///
    /// # Errors
    /// The placer has ended, or no reply arrived in time (it may still arrive: wait again).
    pub fn wait(&self, timeout: Duration) -> Result<T, ControlError> {
        self.0.recv_timeout(timeout).map_err(|e| match e {
            RecvTimeoutError::Timeout => ControlError::Late,
            RecvTimeoutError::Disconnected => ControlError::Ended,
        })
    }

    /// The reply, if it has arrived.
    ///
    /// # Errors
    /// The placer has ended, or there is no reply yet.
    pub fn poll(&self) -> Result<T, ControlError> {
        self.0.try_recv().map_err(|e| match e {
            TryRecvError::Empty => ControlError::Late,
            TryRecvError::Disconnected => ControlError::Ended,
        })
    }
}

/// Sends control messages to one placer; clones send to the same one.
#[derive(Clone, Debug)]
pub struct PlacerHandle {
    pub(crate) sender: SyncSender<ControlRequest>,
    pub(crate) wake: Waker,
}

impl PlacerHandle {
    /// Sends a control message and wakes the loop.
    fn send(
        &self,
        control: impl FnOnce(&mut Placer, &mut dyn FnMut(&Report)) + Send + 'static,
    ) -> Result<(), ControlError> {
        let sent = self
            .sender
            .try_send(Box::new(control))
            .map_err(|e| match e {
                TrySendError::Full(_) => ControlError::Full,
                TrySendError::Disconnected(_) => ControlError::Ended,
            });
        self.wake.wake();
        sent
    }

    /// Sends a control message with a reply.
    fn request<T: Send + 'static>(
        &self,
        control: impl FnOnce(&mut Placer, &mut dyn FnMut(&Report)) -> T + Send + 'static,
    ) -> Result<ControlReply<T>, ControlError> {
        let (reply, answer) = sync_channel(1);
        self.send(move |placer, report| drop(reply.try_send(control(placer, report))))?;
        Ok(ControlReply(answer))
    }

    /// Adds a process tree; the reply is its id, or the reason why it cannot be placed.
    ///
    /// # Errors
    /// The placer has ended, or its queue is full.
    pub fn add(
        &self,
        config: SubjectConfig,
    ) -> Result<ControlReply<Result<SubjectId, PlacerError>>, ControlError> {
        self.request(move |placer, _| placer.add_subject(&config))
    }

    /// Sets the policy of a subject.
    ///
    /// # Errors
    /// As [`PlacerHandle::add`].
    pub fn set_policy(
        &self,
        subject: SubjectId,
        policy: SubjectPolicy,
    ) -> Result<(), ControlError> {
        self.send(move |placer, report| {
            // A subject that ended meanwhile has no policy; its end was reported.
            if placer.set_policy(subject, policy).is_ok() {
                report(&Report::PolicySet { subject });
            }
        })
    }

    /// Ends the back-offs of a subject: masks that another program keeps changing are written
    /// again.
    ///
    /// # Errors
    /// As [`PlacerHandle::add`].
    pub fn retry_now(&self, subject: SubjectId) -> Result<(), ControlError> {
        self.send(move |placer, _| placer.retry_now(subject))
    }

    /// Restores the masks of a subject and removes it; the reply is empty if the subject does not
    /// exist.
    ///
    /// # Errors
    /// As [`PlacerHandle::add`].
    pub fn remove(&self, subject: SubjectId) -> Result<ControlReply<RestoreSummary>, ControlError> {
        self.request(move |placer, report| placer.remove(subject, report))
    }

    /// Requests the state of every slot, [`Placer::table`].
    ///
    /// # Errors
    /// As [`PlacerHandle::add`].
    pub fn table(&self) -> Result<ControlReply<Result<Vec<SlotRow>, PlacerError>>, ControlError> {
        self.request(|placer, _| placer.table())
    }

    /// Requests the overall state of every subject, [`Placer::states`].
    ///
    /// # Errors
    /// As [`PlacerHandle::add`].
    pub fn states(&self) -> Result<ControlReply<Vec<SubjectState>>, ControlError> {
        self.request(|placer, _| placer.states())
    }

    /// Requests the topology used for planning, [`Placer::machine`].
    ///
    /// # Errors
    /// As [`PlacerHandle::add`].
    pub fn machine(&self) -> Result<ControlReply<Topology>, ControlError> {
        self.request(|placer, _| placer.machine().clone())
    }

    /// Requests counters and histograms, [`Placer::counters`].
    ///
    /// # Errors
    /// As [`PlacerHandle::add`].
    pub fn counters(&self) -> Result<ControlReply<PlacerCounters>, ControlError> {
        self.request(|placer, _| placer.counters().clone())
    }

    /// Ends the loop: [`Placer::run`] then restores all masks and returns.
    ///
    /// # Errors
    /// As [`PlacerHandle::add`].
    pub fn stop(&self) -> Result<(), ControlError> {
        self.send(|placer, _| placer.stop())
    }
}
