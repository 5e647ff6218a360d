//! The machine as text: one line per core, with the threads of each CPU.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use albacore_topology::{CpuId, Topology};

use super::columns::{LINE_MAX, paragraph};
use super::tree::{Core, DomainOrCore, nest};

/// Width of `core 0    ` and of `cpu 0   `, in columns.
const CORE_COLUMNS: usize = 8;
const CPU_COLUMNS: usize = 10;

/// One line per core, or one line per CPU if the CPUs of a core do not fit on a line.
pub(super) fn cores_text(machine: &Topology, on_cpus: &BTreeMap<CpuId, String>) -> String {
    let parts = nest(machine);
    let width = on_cpus
        .values()
        .map(|names| names.len())
        .max()
        .unwrap_or(0)
        .max(1);
    let mut writer = CoresTextWriter {
        on_cpus,
        width,
        text: String::new(),
    };
    writer.list(&parts, 0);
    writer.text
}

struct CoresTextWriter<'a> {
    on_cpus: &'a BTreeMap<CpuId, String>,
    width: usize,
    text: String,
}

impl CoresTextWriter<'_> {
    fn list(&mut self, parts: &[DomainOrCore<'_>], depth: usize) {
        let indent = "  ".repeat(depth);
        for part in parts {
            match part {
                DomainOrCore::Domain(domain) => {
                    // infallible: writing to a String.
                    let _ = writeln!(self.text, "{indent}{}", domain.label);
                    self.list(&domain.parts, depth + 1);
                }
                DomainOrCore::Core(core) => self.core(core, &indent),
            }
        }
    }

    fn core(&mut self, core: &Core<'_>, indent: &str) {
        let columns = CORE_COLUMNS + core.cpus.len() * (CPU_COLUMNS + self.width);
        let mut line = format!("{indent}core {:<3}", core.number);
        let names = |cpu| self.on_cpus.get(&cpu).map_or("-", String::as_str);
        if indent.len() + columns <= LINE_MAX {
            let width = self.width;
            for cpu in &core.cpus {
                // infallible: writing to a String.
                let _ = write!(line, "  cpu {:<3} {:<width$}", cpu.id.0, names(cpu.id));
            }
            self.text += line.trim_end();
            self.text.push('\n');
            return;
        }
        for cpu in &core.cpus {
            let label = format!("{line}  cpu {:<3} ", cpu.id.0);
            self.text += &paragraph(&label, label.len(), names(cpu.id));
            line = " ".repeat(line.len());
        }
    }
}
