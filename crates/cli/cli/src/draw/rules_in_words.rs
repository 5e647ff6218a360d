//! Texts of the rules.

use albacore_solver::Rule;

/// The number and the text of a rule, as in `rule 8 (threads on a cpu)`.
pub(super) fn named(rule: Rule) -> String {
    let words = match rule {
        Rule::EqualRanks => "threads of equal rank on different cpus",
        Rule::OwnThreads => "threads of one worker on different cpus",
        Rule::CpuVolume => "every cpu holds the same number of threads, or one more",
        Rule::CoreVolume => "every core holds the same number of threads, or one more",
        Rule::MainsPerCore => "mains spread evenly over cores",
        Rule::FastMains => "mains on the fastest cores",
        Rule::FullCpus => "cpus with one thread more hold no main where that is possible",
        Rule::FullCores => "cores with one thread more hold no main where that is possible",
    };
    match rule {
        Rule::MainsPerCore | Rule::FastMains => format!("{} ({words})", rule.name()),
        rule => format!("rule {} ({words})", rule.name()),
    }
}

/// The number of a rule, as in `rule 8+`, for lines that follow one formatted by [`named`].
pub(super) fn numbered(name: &str) -> String {
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("rule {name}"),
        false => name.to_owned(),
    }
}
