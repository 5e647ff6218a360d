//! Placed pods for unit tests, with every field at its usual value.

use albacore_cluster::ObjectKey;
use albacore_os::{Pid, Tid};
use albacore_placer::{SlotRow, SlotState, SubjectId};
use albacore_plan::{Enforcement, MainThread, PlacementMethod, ServerKind, SubjectPolicy};
use albacore_solver::{Mode, Rank, Slot, WorkerIndex};

use crate::desired::{CountSources, DesiredPod, PodAction};
use crate::facts::{PodFacts, Throttling, TrialFacts};
use crate::opted_in_pod::{OptIn, OptedInPod, PlacedContainer};
use crate::placer_stats::SubjectStats;

pub(crate) fn policy(workers: u16, threads: u16) -> SubjectPolicy {
    SubjectPolicy {
        workers,
        threads,
        mode: Mode::Scatter,
        placement: PlacementMethod::Tuna,
        enforcement: Enforcement::Enforce,
        main_thread: MainThread::Pinned,
        distances: Default::default(),
        is_pool_size_known: true,
    }
}

/// A pod of the namespace `x` whose container `server` runs as `c`.
pub(crate) fn opted_in_pod(name: &str, uid: &str) -> OptedInPod {
    OptedInPod {
        key: ObjectKey::new("x", name),
        uid: uid.to_owned(),
        opt_in: OptIn::Deployment {
            name: "d".to_owned(),
            annotation: None,
        },
        addresses: Vec::new(),
        container: running("c"),
        is_static: false,
        has_ended: false,
        regarding: Default::default(),
    }
}

/// The container `server`, which runs as `id`.
pub(crate) fn running(id: &str) -> PlacedContainer {
    PlacedContainer::Running {
        name: "server".to_owned(),
        id: id.to_owned(),
    }
}

/// An action that places the container `c` by `policy`.
pub(crate) fn place(policy: SubjectPolicy) -> PodAction {
    PodAction::Place {
        container: "c".to_owned(),
        server_kind: Some(ServerKind::Named),
        policy,
        generation: 1,
        counts: CountSources::Deployment,
        trial: None,
    }
}

/// A slot that is planned on `cpu`.
pub(crate) fn row(worker: u16, rank: u16, cpu: u16, state: SlotState) -> SlotRow {
    let is_there = state != SlotState::Missing;
    SlotRow {
        subject: SubjectId(0),
        slot: Slot {
            worker: WorkerIndex(worker),
            rank: Rank(rank),
        },
        pid: is_there.then_some(Pid(10)),
        tid: is_there.then_some(Tid(10)),
        planned: Some(cpu.to_string().parse().unwrap()),
        actual: None,
        verified_micros_ago: None,
        load: None,
        respawns: 0,
        state,
    }
}

/// A placed pod.
pub(crate) fn pod_facts(pod: OptedInPod, policy: SubjectPolicy, rows: Vec<SlotRow>) -> PodFacts {
    PodFacts {
        desired: DesiredPod {
            pod,
            action: place(policy),
        },
        is_placed: true,
        not_placed: None,
        state: None,
        stats: SubjectStats::default(),
        rows,
        throttling: Throttling::default(),
        trial: TrialFacts::default(),
    }
}
