//! The placer on a thread of its own: its reports go to the main thread, its orders come through
//! its handle.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use albacore_placer::{
    Config, Figures, Handle, Placer, PlacerError, Progress, Report, Row, SubjectConfig, SubjectId,
    favor_this_thread,
};

use crate::inbox::Inbox;

/// How often the table is sent while nothing happens, for its "verified ... ago".
const TABLE_PERIOD: Duration = Duration::from_millis(500);

/// What the placer's thread tells.
pub(crate) enum News {
    Report(Report),
    /// All slots, after the events before it.
    Table(Vec<Row>, Box<Figures>),
    /// The loop ended: every mask was given back, or it could not go on.
    Ended(Result<(), PlacerError>),
}

pub(crate) struct Placing {
    pub(crate) handle: Handle,
    pub(crate) subject: SubjectId,
    thread: JoinHandle<()>,
}

impl Placing {
    /// Starts placing `subject`.
    ///
    /// # Errors
    /// The machine, the cpuset or the policy does not allow it.
    pub(crate) fn start(
        subject: SubjectConfig,
        inbox: SyncSender<Inbox>,
    ) -> Result<Self, PlacerError> {
        let (ready, started) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let made = Placer::new(Config::live());
            let added = made.and_then(|mut placer| Ok((placer.add_subject(&subject)?, placer)));
            let (id, mut placer) = match added {
                Ok(added) => added,
                Err(error) => {
                    drop(ready.send(Err(error)));
                    return;
                }
            };
            drop(ready.send(Ok((placer.handle(), id))));
            let ended = follow(&mut placer, &inbox);
            drop(inbox.send(Inbox::Placer(News::Ended(ended))));
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

    /// Waits for the thread to end; its last word came through the inbox.
    pub(crate) fn join(self) {
        drop(self.thread.join());
    }
}

/// Drives the placer until it is told to stop or cannot go on, then gives every mask back.
fn follow(placer: &mut Placer, inbox: &SyncSender<Inbox>) -> Result<(), PlacerError> {
    let tell = |news: News| drop(inbox.send(Inbox::Placer(news)));
    favor_this_thread(&mut |report| tell(News::Report(report.clone())));
    let mut told_at: Option<Instant> = None;
    // bound: one wait per turn; ends with an order to stop
    let result = loop {
        let mut is_news = false;
        let step = placer.step(TABLE_PERIOD, &mut |report| {
            is_news = true;
            tell(News::Report(report.clone()));
        });
        if is_news || told_at.is_none_or(|at| at.elapsed() >= TABLE_PERIOD) {
            told_at = Some(Instant::now());
            match placer.table() {
                Ok(rows) => tell(News::Table(rows, Box::new(placer.figures().clone()))),
                Err(error) => break Err(error),
            }
        }
        match step {
            Ok(Progress::Running) => {}
            Ok(Progress::Stopped) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    placer.restore(&mut |report| tell(News::Report(report.clone())));
    result
}
