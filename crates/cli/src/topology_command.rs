//! `albacore topology`: shows a machine.

use crate::args::{Output, TopologyArgs};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::print::print;
use crate::{draw, json};

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
