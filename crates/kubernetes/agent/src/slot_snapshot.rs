//! Snapshot of the placer's slot table and of the states of its subjects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use albacore_os::Pid;
use albacore_placer::{PlacerHandle, SlotRow, SubjectId, SubjectState};
use albacore_topology::Topology;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::limits::{ANSWER_TIME_MAX, TABLE_PAUSE, TABLE_PERIOD};
use crate::metrics::AgentMetrics;

#[derive(Debug, Default)]
pub(crate) struct SlotSnapshot {
    rows: BTreeMap<SubjectId, Vec<SlotRow>>,
    states: BTreeMap<SubjectId, SubjectState>,
    read_at: Option<Instant>,
    /// Version of the placer's stats when the rows were read.
    version: u64,
    /// Number of sweeps in which the placer has read back all masks.
    sweeps: u64,
    /// Time at which the number of sweeps was last seen to increase, in whole seconds.
    pub(crate) verified_at: Option<Time>,
    /// Hash of the machine's topology.
    pub(crate) topology: u64,
    /// The machine for which plans are made.
    pub(crate) machine: Option<Topology>,
}

impl SlotSnapshot {
    pub(crate) fn set_machine(&mut self, machine: Topology) {
        self.topology = machine.hash64();
        self.machine = Some(machine);
    }

    pub(crate) fn rows(&self, id: SubjectId) -> &[SlotRow] {
        self.rows.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn state(&self, id: SubjectId) -> Option<&SubjectState> {
        self.states.get(&id)
    }

    /// The worker processes of a subject, without duplicates.
    pub(crate) fn worker_pids(&self, id: SubjectId) -> Vec<Pid> {
        let pids: BTreeSet<Pid> = self.rows(id).iter().filter_map(|row| row.pid).collect();
        pids.into_iter().collect()
    }

    /// Drops all rows, because the placer was replaced or has stopped.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.sweeps = 0;
    }

    pub(crate) fn remove(&mut self, id: SubjectId) {
        self.rows.remove(&id);
    }

    /// Whether the placer has reported anything since the rows were read.
    pub(crate) fn is_behind(&self, version: u64) -> bool {
        self.version != version
    }

    /// Time at which outdated rows are read again.
    pub(crate) fn next_read(&self, now: Instant) -> Instant {
        self.read_at.map_or(now, |at| at + TABLE_PAUSE)
    }

    /// Reads the table again if it is old, older than `version`, or if `is_forced`; returns true if
    /// it changed.
    pub(crate) fn refresh(
        &mut self,
        placer: &PlacerHandle,
        version: u64,
        is_forced: bool,
        metrics: &AgentMetrics,
        now: Instant,
    ) -> bool {
        let period = match self.is_behind(version) {
            true => TABLE_PAUSE,
            false => TABLE_PERIOD,
        };
        let is_recent = |at: Instant| now.duration_since(at) < period;
        if !is_forced && self.read_at.is_some_and(is_recent) {
            return false;
        }
        self.read_at = Some(now);
        let Some(rows) = read_rows(placer) else {
            return false;
        };
        self.read_states(placer);
        let is_machine_changed = self.read_machine(placer);
        self.read_counters(placer, metrics);
        let is_changed = rows != self.rows || self.is_behind(version) || is_machine_changed;
        (self.rows, self.version) = (rows, version);
        is_changed
    }

    fn read_states(&mut self, placer: &PlacerHandle) {
        let Ok(pending) = placer.states() else { return };
        let Ok(states) = pending.wait(ANSWER_TIME_MAX) else {
            return;
        };
        let by_id = |state: SubjectState| (state.subject, state);
        self.states = states.into_iter().map(by_id).collect();
    }

    /// Reads the machine again, because CPUs may have gone offline or come online (P25) and
    /// distances may have been measured; returns true if it changed.
    fn read_machine(&mut self, placer: &PlacerHandle) -> bool {
        let Ok(pending) = placer.machine() else {
            return false;
        };
        let Ok(machine) = pending.wait(ANSWER_TIME_MAX) else {
            return false;
        };
        let is_changed = self.machine.as_ref() != Some(&machine);
        self.set_machine(machine);
        is_changed
    }

    fn read_counters(&mut self, placer: &PlacerHandle, metrics: &AgentMetrics) {
        let Ok(pending) = placer.counters() else {
            return;
        };
        let Ok(figures) = pending.wait(ANSWER_TIME_MAX) else {
            return;
        };
        metrics.set_placer(&figures);
        // Only a sweep that finished since the last read proves that masks were read back.
        if figures.sweeps != self.sweeps {
            self.sweeps = figures.sweeps;
            let now = Timestamp::now();
            // Kubernetes stores whole seconds.
            self.verified_at = Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
        }
    }
}

fn read_rows(placer: &PlacerHandle) -> Option<BTreeMap<SubjectId, Vec<SlotRow>>> {
    let table = placer.table().ok()?.wait(ANSWER_TIME_MAX).ok()?.ok()?;
    let mut rows: BTreeMap<SubjectId, Vec<SlotRow>> = BTreeMap::new();
    for mut row in table {
        // Ages change with every read and are not reported; cleared so that equal tables compare
        // equal.
        row.verified_micros_ago = row.verified_micros_ago.map(|_| 0);
        rows.entry(row.subject).or_default().push(row);
    }
    Some(rows)
}
