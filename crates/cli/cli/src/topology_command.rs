//! `albacore topology`: shows a machine.

use albacore_command::Output;

use crate::args::TopologyArgs;
use crate::machine::Machine;
use crate::{draw, json};
use albacore_command::Failure;
use albacore_command::print;

/// Reads the machine and prints it.
pub(crate) fn run(args: &TopologyArgs) -> Result<(), Failure> {
    let machine = Machine::open(&args.machine)?;
    let text = match args.output {
        Output::Text => draw::topology_text(&machine.usable),
        Output::Json => json::topology(&machine.usable)?,
        Output::Svg => draw::topology_svg(&machine.whole, &machine.usable.cpuset()),
    };
    print(&text)
}
