//! `albacore topology --measure`: measures the latencies between the CPUs of this machine, and
//! prints them as a matrix, as means by level, and as a file for planning.

mod pairs;

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use albacore_os::{
    CoreLatency, CoreLatencyError, HostRoot, current_thread, measure_latency, read_mask,
};
use albacore_topology::{CpuId, CpuSet, DistanceMatrix, DistancesFile, Topology};

use crate::args::TopologyArgs;
use crate::draw;
use crate::limits::{MEASURE_TIME, PAIR_ATTEMPTS, PAIR_TIME_MAX, PAIR_TIME_MIN};
use crate::machine::{Machine, restrict};
use albacore_command::{Failure, OutputFormat, print, print_json, sentence};

pub(crate) use pairs::Coverage;

/// Result of a measurement.
pub(crate) struct Measurement {
    pub(crate) machine: Topology,
    pub(crate) coverage: Coverage,
    pub(crate) matrix: DistanceMatrix,
    /// Contains the same matrix.
    pub(crate) file: DistancesFile,
}

/// Measures, writes the file and prints the result.
pub(crate) fn run(args: &TopologyArgs) -> Result<(), Failure> {
    if args.machine.topology.is_some() {
        let what = "--measure measures this machine, not that of --topology: leave one out";
        return Err(Failure::Usage(what.to_owned()));
    }
    if args.output == OutputFormat::Svg {
        let what = "--measure: the result has no picture; use --output text or json";
        return Err(Failure::Usage(what.to_owned()));
    }
    if let Some(path) = &args.write {
        refuse_target(path)?;
    }
    let machine = Machine::open(&args.machine)?;
    let measurement = measure(&machine, args.machine.cpuset.as_ref())?;
    if let Some(path) = &args.write {
        write(path, &measurement.file)?;
    }
    match args.output {
        OutputFormat::Json => print_json(&measurement.file),
        _ => print(&draw::measured_text(&measurement, args.write.as_deref())),
    }
}

/// The CPUs that this process may use, which must include `cpuset`.
fn own_cpus(machine: &Machine, cpuset: Option<&CpuSet>) -> Result<Topology, Failure> {
    let own = read_mask(&HostRoot::live(), current_thread());
    let own = own.map_err(|e| Failure::Failed(sentence(&e)))?;
    let beyond = cpuset.map_or_else(CpuSet::new, |cpuset| cpuset.difference(&own));
    if beyond.is_empty() {
        let own = own.intersection(&machine.usable.cpuset());
        return restrict(&machine.whole, "this process's mask ", &own);
    }
    Err(Failure::Usage(format!(
        "--cpuset: this process may not run on {beyond}, only on {own}: leave these out or widen its cpuset"
    )))
}

fn measure(machine: &Machine, cpuset: Option<&CpuSet>) -> Result<Measurement, Failure> {
    let usable = own_cpus(machine, cpuset)?;
    let (coverage, pairs) = pairs::choose_pairs(&usable);
    if pairs.is_empty() {
        let what = "one cpu: nothing to measure; a latency needs two usable cpus";
        return Err(Failure::Failed(what.to_owned()));
    }
    let count = u32::try_from(pairs.len()).unwrap_or(u32::MAX);
    let time = (MEASURE_TIME / count).clamp(PAIR_TIME_MIN, PAIR_TIME_MAX);
    let measured: CpuSet = pairs.iter().flat_map(|&(a, b)| [a.id, b.id]).collect();
    let cpus: Vec<u16> = measured.iter().map(|cpu| cpu.0).collect();
    let mut cycles = vec![vec![None; cpus.len()]; cpus.len()];
    let mut progress = Progress::of(pairs.len());
    for (a, b) in pairs {
        let latency = measure_pair(a.id, b.id, time).map_err(|e| {
            progress.clear();
            let advice = "measure on an idle machine, or leave a cpu out with --cpuset";
            Failure::Failed(format!("{}: {advice}", sentence(&e)))
        })?;
        let index = |cpu| cpus.binary_search(&cpu).ok();
        if let (Some(i), Some(j)) = (index(a.id.0), index(b.id.0)) {
            let rounded = Some((latency.cycles * 10.0).round() / 10.0);
            cycles[i][j] = rounded;
            cycles[j][i] = rounded;
        }
        progress.advance();
    }
    progress.clear();
    let matrix = DistanceMatrix { cpus, cycles };
    let file = DistancesFile::measured(&machine.whole, matrix.clone());
    file.distances.validate().map_err(|e| {
        let advice = "measure on an idle machine";
        Failure::Failed(format!("the measured {e}; {advice}"))
    })?;
    Ok(Measurement {
        machine: usable,
        coverage,
        matrix,
        file,
    })
}

/// Retries if another process occupied one of the CPUs: of hundreds of pairs, some would always
/// fail on a machine that is in use.
fn measure_pair(a: CpuId, b: CpuId, time: Duration) -> Result<CoreLatency, CoreLatencyError> {
    for _ in 1..PAIR_ATTEMPTS {
        match measure_latency(a, b, time) {
            Err(CoreLatencyError::Silent { .. }) => {}
            measured => return measured,
        }
    }
    measure_latency(a, b, time)
}

/// A progress line on standard error, if that is a terminal.
struct Progress {
    is_shown: bool,
    done: usize,
    all: usize,
}

impl Progress {
    fn of(all: usize) -> Self {
        let is_shown = io::stderr().is_terminal();
        let progress = Self {
            is_shown,
            done: 0,
            all,
        };
        progress.show();
        progress
    }

    fn advance(&mut self) {
        self.done += 1;
        self.show();
    }

    fn show(&self) {
        if self.is_shown {
            eprint!("\rmeasured {} of {} pairs of cpus", self.done, self.all);
        }
    }

    fn clear(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// Rejects a path that cannot be replaced, before the measurement starts.
fn refuse_target(path: &Path) -> Result<(), Failure> {
    let refused = |what: &str| Failure::Usage(format!("--write {}: {what}", path.display()));
    if path.file_name().is_none() || fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(refused("is not a file: give a new file, or one to replace"));
    }
    match folder(path).is_dir() {
        true => Ok(()),
        false => Err(refused("its folder does not exist: create it first")),
    }
}

fn folder(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    parent.unwrap_or(Path::new("."))
}

/// Replaces the file atomically: readers see either the old or the new content.
fn write(path: &Path, file: &DistancesFile) -> Result<(), Failure> {
    let text = file.to_json().map_err(|e| Failure::Broken(sentence(&e)))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = folder(path).join(format!(".{name}.{}", std::process::id()));
    let written = File::create_new(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    });
    written.map_err(|e| {
        // The file may not exist.
        let _ = fs::remove_file(&new);
        Failure::Failed(format!(
            "--write {}: cannot be written: {e}",
            path.display()
        ))
    })
}
