//! A machine as an indented list, with identical cores on one line.

use std::fmt::Write as _;

use albacore_topology::{CAPACITY_MAX, CpuSet, Topology};

use super::tree::{Core, DomainOrCore, nest, summary};

/// The machine as text.
pub(crate) fn topology_text(machine: &Topology) -> String {
    let mut text = summary(machine) + "\n";
    list(&nest(machine), 0, &mut text);
    text
}

fn list(parts: &[DomainOrCore<'_>], depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for part in parts {
        // infallible: writing to a String.
        let _ = match part {
            DomainOrCore::Domain(domain) => writeln!(text, "{indent}{}", domain.label),
            DomainOrCore::Core(core) => writeln!(text, "{indent}{}", line(core)),
        };
        if let DomainOrCore::Domain(domain) = part {
            list(&domain.parts, depth + 1, text);
        }
    }
}

fn line(core: &Core<'_>) -> String {
    let cpus: CpuSet = core.cpus.iter().map(|cpu| cpu.id).collect();
    let noun = if cpus.len() == 1 { "cpu " } else { "cpus" };
    let speed = match core.capacity {
        CAPACITY_MAX => String::new(),
        slow => format!("  capacity {slow} of {CAPACITY_MAX}"),
    };
    format!("core {:<3} {noun} {cpus}{speed}", core.number)
}
