//! An explanation as JSON: the figures that the sentences are made of.

use albacore_explain::{
    Alternative, Binding, Explanation, Group, Nearness, PairCounts, Place, Share, ThreadExplanation,
};
use albacore_mapping::Slot;
use serde::Serialize;

use crate::planning::SinglePlan;

#[derive(Serialize)]
pub(super) struct ExplanationJson {
    cpus: ShareJson,
    cores: ShareJson,
    mains_per_core: u32,
    mains: GroupJson,
    workers: Vec<GroupJson>,
    parts: i64,
    binding: Vec<BindingJson>,
    equal: u64,
    better: Option<AlternativeJson>,
    runner_up: Option<AlternativeJson>,
    complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<ThreadJson>,
}

#[derive(Serialize)]
struct ShareJson {
    units: u32,
    least: u32,
    most: u32,
    at_most: u32,
    held_least: u32,
    held_most: u32,
}

#[derive(Serialize)]
struct GroupJson {
    pairs: PairsJson,
    cycles: i64,
    alone: i64,
}

#[derive(Serialize)]
struct PairsJson {
    cpu: u32,
    core: u32,
    l2: u32,
    l3: u32,
    beyond: u32,
}

#[derive(Serialize)]
struct BindingJson {
    rule: &'static str,
    gain: i64,
}

#[derive(Serialize)]
struct SlotJson {
    worker: u16,
    rank: u16,
}

#[derive(Serialize)]
struct AlternativeJson {
    #[serde(flatten)]
    slot: SlotJson,
    to: u16,
    partner: Option<SlotJson>,
    gain: i64,
}

#[derive(Serialize)]
struct ThreadJson {
    #[serde(flatten)]
    slot: SlotJson,
    cpu: u16,
    to_mains: i64,
    to_worker: i64,
    places: Vec<PlaceJson>,
}

#[derive(Serialize)]
struct PlaceJson {
    cpu: u16,
    nearness: &'static str,
    partner: Option<SlotJson>,
    gain: i64,
    forbidden: Vec<&'static str>,
}

/// The explanation of a plan, if it has one.
pub(super) fn of(plan: &SinglePlan) -> Option<ExplanationJson> {
    // The value is the plan's own field.
    let Explanation {
        objective: _,
        cpus,
        cores,
        mains_per_core,
        mains,
        workers,
        parts,
        binding,
        equal,
        better,
        runner_up,
        complete,
    } = plan.explanation.as_ref()?;
    let bound = |b: &Binding| BindingJson {
        rule: b.rule.name(),
        gain: b.gain,
    };
    Some(ExplanationJson {
        cpus: share(cpus),
        cores: share(cores),
        mains_per_core: *mains_per_core,
        mains: group(mains),
        workers: workers.iter().map(group).collect(),
        parts: *parts,
        binding: binding.iter().map(bound).collect(),
        equal: *equal,
        better: better.as_ref().map(alternative),
        runner_up: runner_up.as_ref().map(alternative),
        complete: *complete,
        thread: plan.thread.as_ref().map(thread),
    })
}

fn share(share: &Share) -> ShareJson {
    let &Share {
        units,
        least,
        most,
        at_most,
        held,
    } = share;
    ShareJson {
        units,
        least,
        most,
        at_most,
        held_least: held.0,
        held_most: held.1,
    }
}

fn group(group: &Group) -> GroupJson {
    let &Group {
        pairs,
        cycles,
        alone,
    } = group;
    let PairCounts {
        cpu,
        core,
        l2,
        l3,
        beyond,
    } = pairs;
    GroupJson {
        pairs: PairsJson {
            cpu,
            core,
            l2,
            l3,
            beyond,
        },
        cycles,
        alone,
    }
}

fn slot(slot: Slot) -> SlotJson {
    SlotJson {
        worker: slot.worker.0,
        rank: slot.rank.0,
    }
}

fn alternative(step: &Alternative) -> AlternativeJson {
    AlternativeJson {
        slot: slot(step.slot),
        to: step.to.0,
        partner: step.partner.map(slot),
        gain: step.gain,
    }
}

fn thread(why: &ThreadExplanation) -> ThreadJson {
    ThreadJson {
        slot: slot(why.slot),
        cpu: why.cpu.0,
        to_mains: why.to_mains,
        to_worker: why.to_worker,
        places: why.places.iter().map(place).collect(),
    }
}

fn place(place: &Place) -> PlaceJson {
    let nearness = match place.nearness {
        Nearness::Core => "core",
        Nearness::L2 => "l2",
        Nearness::L3 => "l3",
        Nearness::Package => "package",
        Nearness::Machine => "machine",
    };
    PlaceJson {
        cpu: place.cpu.0,
        nearness,
        partner: place.partner.map(slot),
        gain: place.gain,
        forbidden: place.forbidden.iter().map(|rule| rule.name()).collect(),
    }
}
