//! `albacore topology`: shows a machine, or measures it.

use albacore_command::{Failure, OutputFormat, print, print_json};

use crate::args::TopologyArgs;
use crate::machine::Machine;
use crate::{draw, json, measure};

/// Reads the machine and prints it.
pub(crate) fn run(args: &TopologyArgs) -> Result<(), Failure> {
    if args.measure {
        return measure::run(args);
    }
    let machine = Machine::open(&args.machine)?;
    match args.output {
        OutputFormat::Text => print(&draw::topology_text(&machine.usable)),
        OutputFormat::Json => print_json(&json::topology(&machine.usable)),
        OutputFormat::Svg => print(&draw::topology_svg(
            &machine.whole,
            &machine.usable.cpuset(),
        )),
    }
}
