//! Explains a plan in sentences: threads in each domain; distances of main threads and of workers,
//! compared with the best that each could have alone; the binding rule, the next best plan, and the
//! proof.

use albacore_api::counted;
use albacore_solver::{
    Alternative, Explanation, Group, Mode, PairCounts, Proof, SpeedClass, Volume,
};
use albacore_topology::{Cpu, Level};

use super::columns::{listed, paragraph, ranges};
use super::rules_in_words::{named, numbered};
use crate::args::{PolicyArg, mode_name};
use crate::planning::SinglePlan;

/// Column at which the sentences start.
const INDENT: usize = 11;

/// The reasons for a plan as text.
pub(super) fn explanation_text(plan: &SinglePlan, why: &Explanation) -> String {
    let mut text = "\nwhy this plan\n".to_owned();
    for (label, sentences) in [
        ("volume", volume(plan, why)),
        ("mains", mains(plan, why)),
        ("workers", workers(plan, why)),
        ("order", order(why)),
        ("rules", rules(plan, why)),
        ("runner-up", runner_up(why)),
        ("proof", proof(plan, why)),
    ] {
        text += &paragraph(label, INDENT, &sentences);
    }
    text
}

/// Which workers share cores: this does not affect the objective, but it matters for dispatchers.
fn order(why: &Explanation) -> String {
    let Some(sharing) = &why.sharing else {
        return "No two workers share a core.".to_owned();
    };
    format!(
        "{} of threads of different workers share a core. The lowest idle worker is taken first: \
         with {} busy, both threads of {} are.",
        counted(sharing.pairs, "pair"),
        counted(u32::from(sharing.busy_workers), "worker"),
        counted(sharing.busy_pairs, "pair"),
    )
}

fn volume(plan: &SinglePlan, why: &Explanation) -> String {
    let slots = u32::from(plan.problem.workers) * u32::from(plan.problem.threads);
    if !why.speeds.is_empty() {
        let of_speed = |speed: &SpeedClass| {
            let noun = if speed.cores == 1 { "has" } else { "have" };
            format!(
                "{} of capacity {} {noun} {}, {} of them main",
                counted(speed.cores, "core"),
                speed.capacity,
                counted(speed.threads, "thread"),
                speed.mains
            )
        };
        let speeds: Vec<String> = why.speeds.iter().map(of_speed).collect();
        return format!(
            "{} on {}: {}. Each takes the core where its ordinal in the core, divided by the \
             capacity, is lowest (rule 8).",
            counted(slots, "thread"),
            counted(why.cpus.units, "cpu"),
            listed(&speeds)
        );
    }
    let mut sentences = format!(
        "{} on {}: {} (rule 8).",
        counted(slots, "thread"),
        counted(why.cpus.units, "cpu"),
        shared(&why.cpus, "cpu")
    );
    if why.cores.units != why.cpus.units {
        sentences += &format!(
            " Of {}, {} (rule 8+).",
            counted(why.cores.units, "core"),
            shared(&why.cores, "core")
        );
    }
    sentences
}

/// Formats as `each must hold 2` or `12 must hold 2 and 4 must hold 1`; adds the actual counts if
/// they violate the rule.
fn shared(share: &Volume, noun: &str) -> String {
    let &Volume {
        units,
        least,
        most,
        at_most,
        held,
    } = share;
    let rule = match units - at_most {
        0 if units == 1 => format!("it must hold {most}"),
        0 => format!("each {noun} must hold {most}"),
        rest => format!("{at_most} must hold {most} and {rest} must hold {least}"),
    };
    if held.0 >= least && held.1 <= most {
        return rule;
    }
    format!("{rule}; here a {noun} holds {} to {}", held.0, held.1)
}

/// Formats as `1 pair shares a core and 5 share an L3`.
fn pairs(counts: &PairCounts) -> String {
    let levels = [
        (Level::Cpu, "a cpu"),
        (Level::L1, "a core"),
        (Level::L2, "an L2"),
        (Level::L3, "an L3"),
        (Level::Numa, "a NUMA node"),
        (Level::Package, "a package"),
        (Level::Machine, "only the machine"),
    ];
    let parts: Vec<String> = levels
        .iter()
        .map(|&(level, what)| (counts.at(level), what))
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| {
            let verb = if count == 1 { "shares" } else { "share" };
            format!("{count} {verb} {what}")
        })
        .collect();
    listed(&parts)
}

fn mains(plan: &SinglePlan, why: &Explanation) -> String {
    let (count, group) = (plan.problem.workers, &why.mains);
    if count == 1 {
        return "There is only one main thread, so there are no distances between mains."
            .to_owned();
    }
    let number = u32::from(count) * (u32::from(count) - 1) / 2;
    let mut sentences = format!(
        "Of the {} of mains, {}: {} cycles apart in sum",
        counted(number, "pair"),
        pairs(&group.pairs),
        group.cycles
    );
    if group.cycles == group.alone {
        sentences += &format!(
            ", as far as {count} mains can be{}",
            forced_sharing(plan, count)
        );
    } else {
        sentences += &format!(". Alone they could be {} apart", group.alone);
        if plan.solution.certificate.optimal {
            sentences += "; that would break a rule or cost the workers more";
        }
    }
    sentences + "."
}

/// Why some pairs of main threads must share a domain: there are fewer domains than main threads.
fn forced_sharing(plan: &SinglePlan, mains: u16) -> String {
    let count = |field: fn(&Cpu) -> u32| {
        let cpus = plan.problem.topology.cpus().iter();
        cpus.map(field)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    };
    let cpus = plan.problem.topology.cpus().len();
    let (cores, l2s, l3s) = (count(|c| c.core), count(|c| c.l2), count(|c| c.l3));
    let mut few = Vec::new();
    if l3s < mains.into() {
        few.push(format!("{l3s} L3"));
    }
    if l2s < mains.into() && l2s < cores && l2s > l3s {
        few.push(format!("{l2s} L2"));
    }
    if cores < mains.into() && cores > l3s {
        few.push(counted(cores as i64, "core"));
    }
    if cpus < mains.into() && cpus > cores {
        few.push(counted(cpus as i64, "cpu"));
    }
    if few.is_empty() {
        return String::new();
    }
    let is_one = few.len() == 1 && few[0].starts_with("1 ");
    let verb = if is_one { "is" } else { "are" };
    format!(": there {verb} only {} for them", listed(&few))
}

fn workers(plan: &SinglePlan, why: &Explanation) -> String {
    let threads = plan.problem.threads;
    if threads == 1 {
        return "A worker has only one thread, so there are no distances within it.".to_owned();
    }
    let (preference, reached, missed) = match plan.problem.mode {
        Mode::Scatter => ("far apart", "as far as", "could be"),
        Mode::Compact => ("close", "as close as", "could be"),
    };
    let number = u32::from(threads) * (u32::from(threads) - 1) / 2;
    let mut sentences = format!(
        "{} wants the threads of a worker {preference}; it has {} of them.",
        capital(mode_name(plan.problem.mode)),
        counted(number, "pair")
    );
    let mut kinds: Vec<(Group, Vec<u16>)> = Vec::new();
    for (worker, group) in (0u16..).zip(&why.workers) {
        match kinds.iter_mut().find(|(kind, _)| kind == group) {
            Some((_, workers)) => workers.push(worker),
            None => kinds.push((*group, vec![worker])),
        }
    }
    for (group, of) in kinds {
        let (noun, each) = match of.len() {
            1 => ("Worker", ""),
            _ => ("Workers", " each"),
        };
        sentences += &format!(
            " {noun} {}{each}: {}, {} cycles in sum",
            ranges(of),
            pairs(&group.pairs),
            group.cycles
        );
        sentences += &if group.cycles == group.alone {
            format!(", {reached} {threads} threads can be here.")
        } else {
            format!("; alone on the machine it {missed} {}.", group.alone)
        };
    }
    sentences
}

fn rules(plan: &SinglePlan, why: &Explanation) -> String {
    let mut sentences = String::new();
    let relaxed = &plan.solution.certificate.relaxed;
    if !relaxed.is_empty() {
        let list: Vec<String> = relaxed
            .iter()
            .map(|r| format!("{} by {}", numbered(r.rule), r.amount))
            .collect();
        sentences += &match plan.policy {
            PolicyArg::RoundRobin => format!("Round robin breaks {}. ", listed(&list)),
            PolicyArg::Tuna => format!(
                "Not all rules can be kept here; relaxed by the least that was found: {}. ",
                listed(&list)
            ),
        };
    }
    if why.binding.is_empty() {
        return sentences + "No rule is binding: without any one of them, exchanges find no gain.";
    }
    let bound: Vec<String> = why
        .binding
        .iter()
        .map(|b| format!("without {} at least {} cycles more", named(b.rule), b.gain))
        .collect();
    format!("{sentences}Binding rules: {}.", bound.join("; "))
}

fn runner_up(why: &Explanation) -> String {
    let unsaid = if why.complete {
        ""
    } else {
        " Not everything was tried within the time limit: this covers only what was tried."
    };
    let equal = match why.equal {
        0 => "No single exchange or shift costs nothing.".to_owned(),
        1 => "1 exchange or shift costs nothing: as good as this.".to_owned(),
        n => format!("{n} exchanges or shifts cost nothing: as good as this."),
    };
    if let Some(better) = why.better {
        return format!(
            "{} would gain {} cycles: this plan is not the best.{unsaid}",
            capital(&step(&better)),
            better.gain
        );
    }
    let Some(next) = why.runner_up else {
        return format!(
            "No single exchange or shift that keeps the rules leads to another value. {equal}{unsaid}"
        );
    };
    format!(
        "The best other value that one exchange or shift can reach is {}: {} costs {} cycles. \
         {equal}{unsaid}",
        why.objective + next.gain,
        step(&next),
        -next.gain
    )
}

/// Formats as `exchanging 0.1 (now ...) with 2.3` or `shifting 0.1 to cpu 5`.
fn step(alternative: &Alternative) -> String {
    let &Alternative {
        slot, to, partner, ..
    } = alternative;
    let thread = format!("{}.{}", slot.worker.0, slot.rank.0);
    match partner {
        Some(other) => format!(
            "exchanging {thread} with {}.{} on cpu {to}",
            other.worker.0, other.rank.0
        ),
        None => format!("shifting {thread} to cpu {to}"),
    }
}

fn proof(plan: &SinglePlan, why: &Explanation) -> String {
    let certificate = &plan.solution.certificate;
    let (objective, bound) = (certificate.objective, certificate.bound);
    if !certificate.optimal {
        let gap = (bound - objective) as f64 / objective.abs().max(1) as f64 * 100.0;
        let said = "No mapping that keeps the rules is above";
        return format!(
            "Not proven. {said} {bound}; this one has {objective}, a gap of {} cycles or {gap:.2} %.",
            bound - objective
        );
    }
    if why.parts == objective {
        return format!(
            "Mains and every worker have the best that each could have alone, {} in sum: the plan \
             is optimal.",
            why.parts
        );
    }
    let how = match certificate.proof {
        Proof::Bound | Proof::None => {
            format!(
                "Counting what the rules allow for all of them together gives the bound {bound}, \
                 which is reached"
            )
        }
        Proof::Lagrangian => format!(
            "Counting alone does not prove how much of it they can have; Lagrangian relaxation \
             gives the bound {bound}, which is reached"
        ),
        Proof::Search => {
            format!("A complete search of what the rules allow found nothing above {bound}")
        }
    };
    format!(
        "If mains and every worker had the best that each could have alone, the sum would be {}; \
         they cannot all have it at once. {how}: the plan is optimal.",
        why.parts
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
