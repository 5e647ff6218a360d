//! Runs the placer on its own thread: reports are sent to the main thread as messages, commands are
//! sent through its handle.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use albacore_placer::{
    LoopStatus, Placer, PlacerConfig, PlacerCounters, PlacerError, PlacerHandle, Report, SlotRow,
    SubjectConfig, SubjectId, SubjectState, raise_thread_priority,
};
use albacore_topology::CpuSet;

use crate::message::Message;

/// Interval at which the table is sent without other reports, to keep its column "verified"
/// current.
const TABLE_PERIOD: Duration = Duration::from_millis(500);

pub(crate) enum PlacerMessage {
    Report(Report),
    /// All slots and subjects, in the state after the reports sent before.
    Table(Vec<SlotRow>, Vec<SubjectState>, Box<PlacerCounters>),
    /// The loop ended: it was stopped and restored every mask, or it failed.
    Ended(Result<(), PlacerError>),
}

pub(crate) struct LocalPlacerThread {
    pub(crate) handle: PlacerHandle,
    pub(crate) subject: SubjectId,
    thread: JoinHandle<()>,
}

impl LocalPlacerThread {
    /// Starts placing `subject` on CPUs within `limit`.
    ///
    /// # Errors
    /// The machine, the cpuset or the policy does not permit the placement.
    pub(crate) fn start(
        subject: SubjectConfig,
        limit: Option<CpuSet>,
        messages: SyncSender<Message>,
    ) -> Result<Self, PlacerError> {
        let (ready, started) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let made = Placer::new(PlacerConfig {
                limit,
                ..PlacerConfig::live()
            });
            let added = made.and_then(|mut placer| Ok((placer.add_subject(&subject)?, placer)));
            let (id, mut placer) = match added {
                Ok(added) => added,
                Err(error) => {
                    drop(ready.send(Err(error)));
                    return;
                }
            };
            drop(ready.send(Ok((placer.handle(), id))));
            let ended = drive(&mut placer, &messages);
            drop(messages.send(Message::Placer(PlacerMessage::Ended(ended))));
        });
        match started.recv() {
            Ok(Ok((handle, subject))) => Ok(Self {
                handle,
                subject,
                thread,
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(PlacerError::UnknownSubject(SubjectId(0))),
        }
    }

    /// Waits for the thread to exit after its `Ended` message.
    pub(crate) fn join(self) {
        drop(self.thread.join());
    }
}

/// Runs the placer until it is stopped or fails, then restores every mask.
fn drive(placer: &mut Placer, messages: &SyncSender<Message>) -> Result<(), PlacerError> {
    let send = |news: PlacerMessage| drop(messages.send(Message::Placer(news)));
    raise_thread_priority(&mut |report| send(PlacerMessage::Report(report.clone())));
    let mut sent_at: Option<Instant> = None;
    // bound: one wait per iteration; ends with the command to stop
    let result = loop {
        let mut has_reports = false;
        let step = placer.step(TABLE_PERIOD, &mut |report| {
            has_reports = true;
            send(PlacerMessage::Report(report.clone()));
        });
        if has_reports || sent_at.is_none_or(|at| at.elapsed() >= TABLE_PERIOD) {
            sent_at = Some(Instant::now());
            match placer.table() {
                Ok(rows) => send(PlacerMessage::Table(
                    rows,
                    placer.states(),
                    Box::new(placer.counters().clone()),
                )),
                Err(error) => break Err(error),
            }
        }
        match step {
            Ok(LoopStatus::Running) => {}
            Ok(LoopStatus::Stopped) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    placer.restore(&mut |report| send(PlacerMessage::Report(report.clone())));
    result
}
