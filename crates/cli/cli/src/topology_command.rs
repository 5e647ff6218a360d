//! `albacore topology`: shows a machine, or measures it.

use albacore_command::{Failure, Output, print, print_json};

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
        Output::Text => print(&draw::topology_text(&machine.usable)),
        Output::Json => print_json(&json::topology(&machine.usable)),
        Output::Svg => print(&draw::topology_svg(
            &machine.whole,
            &machine.usable.cpuset(),
        )),
    }
}
