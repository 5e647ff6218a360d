//! Adopts the masks that an earlier instance of the placer wrote: after a restart the mapping is
//! derived from the masks, so that the next solve starts from it and moves a thread only for a
//! gain.

use albacore_plan::{SubjectPolicy, plan};
use albacore_solver::{Mapping, Slot};
use albacore_topology::{CpuId, Topology};

use super::Subject;
use crate::PlacerError;
use crate::process::ProcessReader;

impl Subject {
    /// Derives the mapping from the masks if at least half of the slots have a thread with a single
    /// cpu; the other slots get a cpu of their mask, or any cpu.
    pub(crate) fn adopt_masks(
        &mut self,
        reader: &ProcessReader,
        machine: &Topology,
    ) -> Result<(), PlacerError> {
        if self.solver.solution().is_some() {
            return Ok(());
        }
        let observation = &self.observe(reader, machine)?;
        let SubjectPolicy {
            workers, threads, ..
        } = *self.policy();
        // Only the assignment of slots is used from this plan; none of its steps are executed.
        let plan = plan(self.policy(), observation, None, &self.history);
        let history = plan.history();
        let Some(any) = observation.cpuset.first() else {
            return Ok(());
        };
        let (mut known, mut cpus) = (0, Vec::new());
        for slot in Slot::all(workers, threads) {
            let process = history.worker(slot.worker).map(|id| id.pid);
            let thread = history.thread_at(slot).map(|id| id.tid);
            let mask = process
                .zip(thread)
                .and_then(|(pid, tid)| Some(self.tree.thread(pid, tid)?.mask.clone()))
                .map(|mask| mask.intersection(&observation.cpuset));
            known += usize::from(mask.as_ref().is_some_and(|mask| mask.len() == 1));
            let cpu: CpuId = mask.and_then(|mask| mask.first()).unwrap_or(any);
            cpus.push(cpu);
        }
        if known * 2 >= cpus.len() && !cpus.is_empty() {
            self.solver.start_from(Mapping { threads, cpus });
        }
        Ok(())
    }
}
