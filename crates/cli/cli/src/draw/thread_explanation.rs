//! Explains the placement of one thread in sentences: the cost of every other CPU, with CPUs of
//! equal cost on one line.

use albacore_api::counted;
use albacore_solver::{AlternativeCpu, Mode, Slot, ThreadExplanation};
use albacore_topology::Level;

use super::columns::{listed, paragraph, ranges};
use super::rules_in_words::{named, numbered};
use crate::planning::SinglePlan;

/// Column at which the sentences start.
const INDENT: usize = 15;

/// Why the thread is on its CPU.
pub(super) fn thread_text(plan: &SinglePlan, why: &ThreadExplanation) -> String {
    let name = format!("{}.{}", why.slot.worker.0, why.slot.rank.0);
    let core = plan.problem.topology.cpu(why.cpu).map_or(0, |cpu| cpu.core);
    let mut text = format!("\nwhy {name} is on cpu {} (core {core})\n", why.cpu);
    text += &paragraph("", 0, &role(plan, why));
    let mut named_rules = Vec::new();
    for (nearness, label) in [
        (Level::L1, "same core"),
        (Level::L2, "same L2"),
        (Level::L3, "same L3"),
        (Level::Numa, "other L3"),
        (Level::Package, "other NUMA node"),
        (Level::Machine, "other package"),
    ] {
        let mut label = label;
        for places in groups_by_cost(why, nearness) {
            let cpus = ranges(places.iter().map(|place| place.cpu.0));
            let noun = if places.len() == 1 { "cpu" } else { "cpus" };
            let what = sentence(why.slot, &places, &mut named_rules);
            text += &paragraph(label, INDENT, &format!("{noun} {cpus}: {what}"));
            label = "";
        }
    }
    text += &paragraph("", 0, &verdict(why));
    text
}

fn role(plan: &SinglePlan, why: &ThreadExplanation) -> String {
    let (workers, threads) = (plan.problem.workers, plan.problem.threads);
    let worker = why.slot.worker.0;
    let mut parts = Vec::new();
    let is_main = why.slot.rank.0 == 0;
    if is_main && workers > 1 {
        let others = counted(workers - 1, "other main");
        parts.push(format!(
            "{} cycles to the {others} (far is better)",
            why.to_mains
        ));
    }
    if threads > 1 {
        let others = counted(threads - 1, "other thread");
        let preference = match plan.problem.mode {
            Mode::Scatter => "far",
            Mode::Compact => "close",
        };
        parts.push(format!(
            "{} cycles to the {others} of worker {worker} ({preference} is better)",
            why.to_worker
        ));
    }
    let role = match is_main {
        true => format!("It is the main thread of worker {worker}"),
        false => format!("It is a peer thread of worker {worker}"),
    };
    if parts.is_empty() {
        return format!("{role}, and the only thread.");
    }
    format!("{role}: {}.", parts.join(", "))
}

/// The CPUs at one level of distance, grouped by equal cost or by the same violated rules, the best
/// first.
fn groups_by_cost(why: &ThreadExplanation, nearness: Level) -> Vec<Vec<&AlternativeCpu>> {
    let of = |place: &AlternativeCpu| match place.forbidden.is_empty() {
        true => (0, -place.gain, Vec::new()),
        false => (1, 0, place.forbidden.clone()),
    };
    let mut groups = std::collections::BTreeMap::<_, Vec<&AlternativeCpu>>::new();
    for place in why.places.iter().filter(|place| place.nearness == nearness) {
        groups.entry(of(place)).or_default().push(place);
    }
    groups.into_values().collect()
}

/// The thread with which it would exchange CPUs.
fn partner_kind(slot: Slot, other: Slot) -> &'static str {
    match (other.worker == slot.worker, other.rank.0 == 0) {
        (true, true) => "its own main",
        (true, false) => "a peer of its own worker",
        (false, true) => "another main",
        (false, false) => "a peer of another worker",
    }
}

/// The sentence for one group of CPUs; a rule is spelled out at its first mention.
fn sentence(slot: Slot, places: &[&AlternativeCpu], named_rules: &mut Vec<&'static str>) -> String {
    let mut partners: Vec<&str> = Vec::new();
    for other in places.iter().filter_map(|place| place.partner) {
        let kind = partner_kind(slot, other);
        if !partners.contains(&kind) {
            partners.push(kind);
        }
    }
    let is_alone = places.iter().any(|place| place.partner.is_none());
    let way = match (partners.is_empty(), is_alone) {
        (true, _) => "without an exchange".to_owned(),
        (false, false) => format!("in exchange with {}", partners.join(" or ")),
        (false, true) => format!("with or without an exchange with {}", partners.join(" or ")),
    };
    let gains = || places.iter().map(|place| place.gain);
    let (least, most) = (gains().min().unwrap_or(0), gains().max().unwrap_or(0));
    let forbidden = places.first().map(|place| place.forbidden.as_slice());
    let forbidden = forbidden.unwrap_or_default();
    if forbidden.is_empty() {
        let worth = match most {
            0 => "costs nothing".to_owned(),
            gain @ 1.. => format!("would gain {gain} cycles"),
            cost => format!("costs {} cycles", -cost),
        };
        return format!("{worth}, {way}");
    }
    let mut rules = Vec::new();
    for rule in forbidden {
        rules.push(match named_rules.contains(&rule.name()) {
            true => numbered(rule.name()),
            false => named(*rule),
        });
        named_rules.push(rule.name());
    }
    let verb = if rules.len() == 1 {
        "forbids"
    } else {
        "forbid"
    };
    format!(
        "{} {verb} it; it would {}",
        listed(&rules),
        gain_text(least, most)
    )
}

/// A sentence about a gain from `least` to `most` cycles.
fn gain_text(least: i64, most: i64) -> String {
    let span = |low: i64, high: i64| match low == high {
        true => format!("{low} cycles"),
        false => format!("{low} to {high} cycles"),
    };
    match (least, most) {
        (0, 0) => "cost nothing".to_owned(),
        (1.., _) => format!("gain {}", span(least, most)),
        (_, ..=0) => format!("cost {}", span(-most, -least)),
        _ => format!("gain {most} cycles at best"),
    }
}

fn verdict(why: &ThreadExplanation) -> String {
    let allowed = || why.places.iter().filter(|place| place.forbidden.is_empty());
    if let Some(best) = allowed()
        .map(|place| place.gain)
        .max()
        .filter(|&gain| gain > 0)
    {
        return format!("It would be better elsewhere, by up to {best} cycles.");
    }
    let better = why.places.iter().filter(|place| place.gain > 0).count();
    let equal = allowed().filter(|place| place.gain == 0).count();
    let mut text = match (equal, better) {
        (0, 0) => "No other cpu is as good".to_owned(),
        (0, _) => "No other allowed cpu is as good".to_owned(),
        (1, _) => "No cpu is better, 1 other cpu is as good".to_owned(),
        (n, _) => format!("No cpu is better, {n} other cpus are as good"),
    };
    text += ", considering one exchange or shift at a time.";
    text
}
