//! An explanation as JSON: the numbers in the sentences of the text output.

use albacore_solver::{
    Alternative, AlternativeCpu, CoreSharing, Explanation, Group, Slot, SpeedClass,
    ThreadExplanation, Volume,
};
use albacore_topology::Level;
use serde_json::{Value, json};

use super::list;
use crate::planning::SinglePlan;

/// The explanation of a plan, if present. The objective is a field of the plan itself.
pub(super) fn of(plan: &SinglePlan) -> Option<Value> {
    let why: &Explanation = plan.explanation.as_ref()?;
    let mut json = json!({
        "cpus": share(&why.cpus),
        "cores": share(&why.cores),
        "speeds": list(&why.speeds, speed),
        "mains_per_core": why.mains_per_core,
        "core_sharing": why.sharing.as_ref().map(sharing),
        "mains": group(&why.mains),
        "workers": list(&why.workers, group),
        "parts": why.parts,
        "binding": list(&why.binding, |b| json!({"rule": b.rule.name(), "gain": b.gain})),
        "equal": why.equal,
        "better": why.better.as_ref().map(alternative),
        "runner_up": why.runner_up.as_ref().map(alternative),
        "complete": why.complete,
    });
    if let Some(thread) = &plan.thread {
        json["thread"] = of_thread(thread);
    }
    Some(json)
}

fn share(share: &Volume) -> Value {
    json!({
        "units": share.units,
        "least": share.least,
        "most": share.most,
        "at_most": share.at_most,
        "held_least": share.held.0,
        "held_most": share.held.1,
    })
}

fn speed(speed: &SpeedClass) -> Value {
    json!({
        "capacity": speed.capacity,
        "cores": speed.cores,
        "cpus": speed.cpus,
        "threads": speed.threads,
        "mains": speed.mains,
    })
}

fn sharing(sharing: &CoreSharing) -> Value {
    json!({
        "pairs": sharing.pairs,
        "busy_workers": sharing.busy_workers,
        "busy_pairs": sharing.busy_pairs,
    })
}

fn group(group: &Group) -> Value {
    let at = |level| group.pairs.at(level);
    let [numa, package, machine] = [Level::Numa, Level::Package, Level::Machine].map(at);
    json!({
        "pairs": {
            "cpu": at(Level::Cpu),
            "core": at(Level::L1),
            "l2": at(Level::L2),
            "l3": at(Level::L3),
            "numa": numa,
            "package": package,
            "machine": machine,
            // the sum of these three, which was the only field in 0.1.0
            "beyond": numa + package + machine,
        },
        "cycles": group.cycles,
        "alone": group.alone,
    })
}

fn slot(slot: Slot) -> Value {
    json!({"worker": slot.worker.0, "rank": slot.rank.0})
}

fn alternative(step: &Alternative) -> Value {
    let Slot { worker, rank } = step.slot;
    json!({
        "worker": worker.0,
        "rank": rank.0,
        "to": step.to.0,
        "partner": step.partner.map(slot),
        "gain": step.gain,
    })
}

fn of_thread(why: &ThreadExplanation) -> Value {
    let Slot { worker, rank } = why.slot;
    json!({
        "worker": worker.0,
        "rank": rank.0,
        "cpu": why.cpu.0,
        "to_mains": why.to_mains,
        "to_worker": why.to_worker,
        "places": list(&why.places, place),
    })
}

fn place(place: &AlternativeCpu) -> Value {
    let nearness = match place.nearness {
        Level::L1 => "core",
        level => level.name(),
    };
    json!({
        "cpu": place.cpu.0,
        "nearness": nearness,
        "partner": place.partner.map(slot),
        "gain": place.gain,
        "forbidden": list(&place.forbidden, |rule| rule.name().into()),
    })
}
