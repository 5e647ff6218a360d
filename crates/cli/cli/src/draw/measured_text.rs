//! Measured latencies as text: the matrix, if it fits, and one line per level.

use std::fmt::Write as _;
use std::path::Path;

use albacore_api::counted;
use albacore_topology::{CpuId, Level};

use super::columns::{LINE_MAX, paragraph};
use super::tree::summary;
use crate::measure::{Coverage, Measurement};

/// Width of one number, in columns.
const CELL: usize = 8;

/// The domain shared by two CPUs at each level.
const MEANINGS: [(Level, &str); 6] = [
    (Level::L1, "one core"),
    (Level::L2, "one L2"),
    (Level::L3, "one L3"),
    (Level::Numa, "one NUMA node"),
    (Level::Package, "one package"),
    (Level::Machine, "nothing"),
];

/// The measurement as text; `written` is the path of the file with it.
pub(crate) fn measured_text(measurement: &Measurement, written: Option<&Path>) -> String {
    let pairs = measurement.matrix.pairs().count();
    let which = match measurement.coverage {
        Coverage::All => "all",
        Coverage::OneCpuOfEachCore => {
            "those of the first cpus of cores, and the first two cpus of each core"
        }
        Coverage::SampleOfEachLevel => "a sample for each level, as there are too many cores",
    };
    let what = format!("{} of cpus: {which}", counted(pairs, "pair"));
    let mut text = paragraph("machine", 11, &summary(&measurement.machine));
    text += &paragraph("measured", 11, &what);
    text += "latency    clock cycles, one way\n\n";
    text += &matrix_text(measurement);
    text += "\n";
    text += &levels_text(measurement);
    if let Some(path) = written {
        let path = path.display();
        text += &format!("\nwritten to {path}: use it with albacore plan --distances {path}\n");
    }
    text
}

fn matrix_text(measurement: &Measurement) -> String {
    let matrix = &measurement.matrix;
    let count = matrix.cpus.len();
    if (count + 1) * CELL > LINE_MAX {
        return format!(
            "The matrix of {count} x {count} cpus is in the file of --write and in --output json.\n"
        );
    }
    let mut text = format!("{:CELL$}", "");
    // infallible: writing to a String.
    for cpu in &matrix.cpus {
        let _ = write!(text, "{cpu:>CELL$}");
    }
    text.push('\n');
    for (index, (cpu, row)) in matrix.cpus.iter().zip(&matrix.cycles).enumerate() {
        let _ = write!(text, "{cpu:>CELL$}");
        for (column, cycles) in row.iter().enumerate() {
            let _ = match cycles {
                Some(cycles) if column != index => write!(text, "{cycles:>CELL$.1}"),
                _ => write!(text, "{:>CELL$}", "-"),
            };
        }
        text.push('\n');
    }
    text
}

fn levels_text(measurement: &Measurement) -> String {
    let machine = &measurement.machine;
    let mut text = String::from(
        "level    both are in        pairs     mean      min      max  default  planned with\n",
    );
    for (level, meaning) in MEANINGS {
        let cycles: Vec<f64> = measurement
            .matrix
            .pairs()
            .filter_map(|(a, b, cycles)| {
                let (a, b) = (machine.cpu(CpuId(a))?, machine.cpu(CpuId(b))?);
                (Level::of(a, b) == level).then_some(cycles)
            })
            .collect();
        let count = cycles.len();
        let [mean, min, max] = match count {
            0 => [const { "-" }; 3].map(str::to_owned),
            _ => [
                cycles.iter().sum::<f64>() / count as f64,
                cycles.iter().copied().fold(f64::MAX, f64::min),
                cycles.iter().copied().fold(0.0, f64::max),
            ]
            .map(|cycles| format!("{cycles:.1}")),
        };
        let default = machine.distances().at(level);
        let planned = measurement.file.distances.at(level);
        // infallible: writing to a String.
        let _ = writeln!(
            text,
            "{:<8} {meaning:<15} {count:>8} {mean:>8} {min:>8} {max:>8} {default:>8} {planned:>13}",
            level.name()
        );
    }
    text
}
