//! Births that the kernel announces, where somebody asked for that and it is allowed.

use std::time::Duration;

use albacore_os::{ConnectorError, Micros, ProcConnector};

use super::{CONNECTOR_KEY, Placer, after};
use crate::PlacerError;
use crate::limits::{DEAF_TIME, HEARING_PERIOD};

#[derive(Debug)]
pub(super) struct Births {
    connector: ProcConnector,
    /// So much is born on the machine that hearing of it costs too much: until then births are only
    /// polled.
    deaf_until: Option<Micros>,
    /// When births were taken last.
    heard_at: Micros,
}

impl Placer {
    /// Asks the kernel to announce births from now on. Polling goes on: events may be lost.
    ///
    /// # Errors
    /// The kernel announces none here; births are polled.
    pub fn hear_births(&mut self) -> Result<(), ConnectorError> {
        let connector = ProcConnector::open()?;
        self.poll.add(&connector, CONNECTOR_KEY)?;
        self.births = Some(Births {
            connector,
            deaf_until: None,
            heard_at: Micros(0),
        });
        Ok(())
    }

    /// Takes what was announced.
    pub(super) fn take_births(&mut self) -> Result<(), PlacerError> {
        let Some(births) = &mut self.births else {
            return Ok(());
        };
        let since = self.reader.clock.now()?.0.saturating_sub(births.heard_at.0);
        if let Some(rest) = HEARING_PERIOD.checked_sub(Duration::from_micros(since)) {
            std::thread::sleep(rest);
        }
        let now = self.reader.clock.now()?;
        births.heard_at = now;
        let mut heard = Vec::new();
        let mut lost = births.connector.read(&mut heard)?;
        if births.deaf_until.is_some_and(|until| now >= until) {
            self.poll.add(&births.connector, CONNECTOR_KEY)?;
            births.deaf_until = None;
            lost = true;
        }
        self.figures.births_heard += heard.len() as u64;
        self.figures.births_lost += u64::from(lost);
        for subject in self.subjects.values_mut() {
            for birth in &heard {
                if subject.tree.hear(birth)? {
                    subject.is_dirty = true;
                    // Where names decide, it gets its own in a moment.
                    self.due.births = Micros(0);
                }
            }
        }
        if lost {
            // Whatever was born is found by looking.
            self.last_pid = -1;
            self.due.births = Micros(0);
            self.due.children = Micros(0);
        }
        Ok(())
    }

    /// Stops listening for a while.
    pub(super) fn turn_deaf(&mut self, now: Micros) -> Result<(), PlacerError> {
        let slowdown = self.slowdown();
        if let Some(births) = &mut self.births
            && births.deaf_until.is_none()
        {
            self.poll.remove(&births.connector)?;
            births.deaf_until = Some(after(now, Duration::from_millis(1) + DEAF_TIME * slowdown));
        }
        Ok(())
    }

    /// When listening begins again.
    pub(super) fn hears_again_at(&self) -> Option<Micros> {
        self.births.as_ref().and_then(|births| births.deaf_until)
    }
}
