//! Spawn events of the kernel (netlink proc connector), if requested and permitted.

use std::time::Duration;

use albacore_os::{ConnectorError, Micros, ProcConnector};

use super::{CONNECTOR_KEY, Placer, after};
use crate::PlacerError;
use crate::limits::{SPAWN_EVENTS_PAUSE, SPAWN_EVENTS_PERIOD};

#[derive(Debug)]
pub(super) struct SpawnEvents {
    connector: ProcConnector,
    /// Set while events are ignored because the machine spawns so much that they cost too much;
    /// until then spawns are only polled.
    paused_until: Option<Micros>,
    /// When events were last read.
    read_at: Micros,
}

impl Placer {
    /// Subscribes to spawn events. Polling continues, because events may be lost.
    ///
    /// # Errors
    /// The kernel sends no events here; spawns are only polled.
    pub fn subscribe_spawn_events(&mut self) -> Result<(), ConnectorError> {
        let connector = ProcConnector::open()?;
        self.events.poll.add(&connector, CONNECTOR_KEY)?;
        self.events.spawn_events = Some(SpawnEvents {
            connector,
            paused_until: None,
            read_at: Micros(0),
        });
        Ok(())
    }

    /// Handles pending spawn events.
    pub(super) fn handle_spawn_events(&mut self) -> Result<(), PlacerError> {
        let Some(source) = &mut self.events.spawn_events else {
            return Ok(());
        };
        let since = self.reader.clock.now()?.0.saturating_sub(source.read_at.0);
        if let Some(rest) = SPAWN_EVENTS_PERIOD.checked_sub(Duration::from_micros(since)) {
            std::thread::sleep(rest);
        }
        let now = self.reader.clock.now()?;
        source.read_at = now;
        let mut events = Vec::new();
        let mut lost = source.connector.read(&mut events)?;
        if source.paused_until.is_some_and(|until| now >= until) {
            self.events.poll.add(&source.connector, CONNECTOR_KEY)?;
            source.paused_until = None;
            lost = true;
        }
        self.figures.spawn_events += events.len() as u64;
        self.figures.spawn_events_lost += u64::from(lost);
        for subject in self.subjects.values_mut() {
            for event in &events {
                if subject.tree.handle_event(event)? {
                    subject.schedule.request();
                    // If threads are named, this one is about to set its name.
                    self.due.spawns = Micros(0);
                }
            }
        }
        if lost {
            // The spawns are found by polling.
            self.spawns.invalidate();
            self.due.spawns = Micros(0);
            self.due.children = Micros(0);
        }
        Ok(())
    }

    /// Unsubscribes temporarily, because the events cost too much.
    pub(super) fn pause_spawn_events(&mut self, now: Micros) -> Result<(), PlacerError> {
        let slowdown = self.slowdown();
        if let Some(source) = &mut self.events.spawn_events
            && source.paused_until.is_none()
        {
            self.events.poll.remove(&source.connector)?;
            source.paused_until = Some(after(
                now,
                Duration::from_millis(1) + SPAWN_EVENTS_PAUSE * slowdown,
            ));
        }
        Ok(())
    }

    /// When events are enabled again, if they are paused.
    pub(super) fn spawn_events_resume_at(&self) -> Option<Micros> {
        self.events
            .spawn_events
            .as_ref()
            .and_then(|source| source.paused_until)
    }
}
