//! Command line arguments of `albacore plan`.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use albacore_solver::{Rank, Slot, WorkerIndex};
use albacore_topology::{CpuId, CpuSet, DistanceOverrides};
use clap::ValueEnum;

use super::{ClusterPlanArgs, MachineArgs, OutputFormat};
use crate::limits::TIME_LIMIT_MAX;

/// Options that describe one deployment; with several deployments, their files do.
const OF_ONE: [&str; 4] = ["workers", "threads", "mode", "policy"];

/// Usage lines.
const USAGE: &str = "albacore plan --workers <W> --threads <T> --mode <MODE> [OPTIONS]
       albacore plan -f <FILE>... [OPTIONS]
       albacore plan -f <FILE>... --cluster [--node <NAME>]... [OPTIONS]";

#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE)]
pub(crate) struct PlanArgs {
    /// Number of workers
    #[arg(long, value_name = "W", required_unless_present = "file")]
    pub(crate) workers: Option<u16>,
    /// Number of threads per worker
    #[arg(long, value_name = "T", required_unless_present = "file")]
    pub(crate) threads: Option<u16>,
    /// Place the threads of a worker far apart (most cache for each) or close together (cheapest
    /// sharing)
    #[arg(long, value_enum, required_unless_present = "file")]
    pub(crate) mode: Option<ModeArg>,
    /// Placement policy
    #[arg(long, value_enum, default_value_t = PolicyArg::Tuna)]
    pub(crate) policy: PolicyArg,
    /// InferenceDeployment file, instead of --workers, --threads and --mode; repeat -f to plan
    /// several deployments together. CPUS after an @ restricts a deployment to these CPUs, as in -f
    /// a.yaml@0-15 [default: those of --cpuset]
    #[arg(short, long, value_name = "FILE[@CPUS]", conflicts_with_all = OF_ONE)]
    pub(crate) file: Vec<FileArg>,
    /// Current plan, as printed by --output json: the new plan moves as few threads as possible,
    /// and the difference is shown
    #[arg(long, value_name = "FILE")]
    pub(crate) current: Option<PathBuf>,
    /// Explain the plan; with W.R, such as 2.0, explain the CPU of that thread (worker 2, rank 0)
    #[arg(long, value_name = "W.R", num_args = 0..=1)]
    pub(crate) explain: Option<Option<ThreadArg>>,
    /// Search limit, in seconds of a typical machine; a slower machine takes longer and finds the
    /// same plan [default: 2]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time_limit: Option<Duration>,
    /// With -f: number of threads of other processes on a CPU, as in --obstacle 3=2; also for CPUs
    /// outside --cpuset; can be repeated
    #[arg(long, value_name = "CPU=THREADS")]
    pub(crate) obstacle: Vec<ObstacleArg>,
    /// With -f and --current: a change must gain more than this number of cycles per moved thread
    #[arg(long, value_name = "CYCLES")]
    pub(crate) move_cost: Option<u32>,
    /// Distances between CPUs, in clock cycles: levels such as l3=60,machine=300, or the file
    /// written by `albacore topology --measure --write FILE` [default: those of the machine]
    #[arg(long, value_name = "LEVELS|FILE")]
    pub(crate) distances: Option<DistancesArg>,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) cluster: ClusterPlanArgs,
}

impl PlanArgs {
    /// Whether to plan for the nodes of a cluster: an option requests it, or the command is a
    /// kubectl plugin and no option selects a machine.
    pub(crate) fn is_for_cluster(&self, is_plugin: bool) -> bool {
        let is_here = self.machine.topology.is_some()
            || self.machine.cpuset.is_some()
            || self.current.is_some()
            || self.explain.is_some()
            || self.time_limit.is_some()
            || self.distances.is_some()
            || !self.obstacle.is_empty();
        self.cluster.is_given() || (is_plugin && !self.file.is_empty() && !is_here)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ModeArg {
    /// Far apart: most cache for each thread
    Scatter,
    /// Close together: cheapest sharing
    Compact,
}

impl From<ModeArg> for albacore_solver::Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Scatter => Self::Scatter,
            ModeArg::Compact => Self::Compact,
        }
    }
}

/// Name of a mode on the command line and in output.
pub(crate) fn mode_name(mode: albacore_solver::Mode) -> &'static str {
    match mode {
        albacore_solver::Mode::Scatter => "scatter",
        albacore_solver::Mode::Compact => "compact",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Search for the best placement, with a proven bound on its quality
    Tuna,
    /// Assign threads to CPUs in order, for comparison
    RoundRobin,
}

impl PolicyArg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tuna => "tuna",
            Self::RoundRobin => "round-robin",
        }
    }
}

/// The file of a deployment and the CPUs that the deployment may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileArg {
    pub(crate) path: PathBuf,
    pub(crate) cpuset: Option<CpuSet>,
}

impl FromStr for FileArg {
    type Err = String;

    /// The part after the last @ is a CPU list if it begins with a digit, otherwise a part of the
    /// name.
    fn from_str(text: &str) -> Result<Self, String> {
        let whole = || Self {
            path: PathBuf::from(text),
            cpuset: None,
        };
        let Some((path, list)) = text.rsplit_once('@') else {
            return Ok(whole());
        };
        if Path::new(text).exists() || !list.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(whole());
        }
        let cpuset = list.parse().map_err(|e| format!("after the @: {e}"))?;
        Ok(Self {
            path: PathBuf::from(path),
            cpuset: Some(cpuset),
        })
    }
}

/// A thread, given by worker and rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ThreadArg(pub(crate) Slot);

impl FromStr for ThreadArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let slot = text.split_once('.').and_then(|(worker, rank)| {
            Some(Slot {
                worker: WorkerIndex(worker.parse().ok()?),
                rank: Rank(rank.parse().ok()?),
            })
        });
        let help = "write worker.rank, such as 2.0 for the main thread of worker 2";
        slot.map(Self).ok_or_else(|| help.to_owned())
    }
}

/// Threads of other processes on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObstacleArg {
    pub(crate) cpu: CpuId,
    pub(crate) weight: u32,
}

impl FromStr for ObstacleArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('=').and_then(|(cpu, weight)| {
            let weight = weight.parse().ok().filter(|&weight| weight > 0)?;
            Some(Self {
                cpu: CpuId(cpu.parse().ok()?),
                weight,
            })
        });
        let help = "write CPU=THREADS, such as 3=2 for two threads on cpu 3";
        parsed.ok_or_else(|| help.to_owned())
    }
}

/// Distances by level, or a file that contains them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DistancesArg {
    Overrides(DistanceOverrides),
    File(PathBuf),
}

impl FromStr for DistancesArg {
    type Err = String;

    /// Parses levels if the text contains a `=`, otherwise a path.
    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains('=') {
            return Ok(Self::File(PathBuf::from(text)));
        }
        let overrides = text.parse();
        overrides
            .map(Self::Overrides)
            .map_err(|e: albacore_topology::DistancesError| e.to_string())
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let limit = text
        .parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok());
    let limit = limit.filter(|limit| !limit.is_zero() && *limit <= TIME_LIMIT_MAX);
    let help = format!(
        "write seconds above 0, at most {}",
        TIME_LIMIT_MAX.as_secs()
    );
    limit.ok_or(help)
}

#[cfg(test)]
mod tests {
    use super::{FileArg, ObstacleArg, ThreadArg, seconds};

    #[test]
    fn a_file_may_carry_its_cpus() {
        let file: FileArg = "a@b.yaml@0-3,8".parse().unwrap();
        assert_eq!(file.path.to_str(), Some("a@b.yaml"));
        assert_eq!(file.cpuset.unwrap().to_string(), "0-3,8");
        let file: FileArg = "a@b.yaml".parse().unwrap();
        assert_eq!((file.path.to_str(), file.cpuset), (Some("a@b.yaml"), None));
        assert!("a.yaml@3-1".parse::<FileArg>().is_err());
    }

    #[test]
    fn threads_obstacles_and_seconds_are_read_or_refused_with_an_example() {
        let ThreadArg(slot) = "2.10".parse().unwrap();
        assert_eq!((slot.worker.0, slot.rank.0), (2, 10));
        for text in ["2", "2.", ".1", "a.b", "-1.0", "1.2.3"] {
            assert!(
                text.parse::<ThreadArg>()
                    .unwrap_err()
                    .contains("such as 2.0")
            );
        }
        let obstacle: ObstacleArg = "3=2".parse().unwrap();
        assert_eq!((obstacle.cpu.0, obstacle.weight), (3, 2));
        for text in ["3", "3=0", "=2", "x=1", "3=-1"] {
            assert!(
                text.parse::<ObstacleArg>()
                    .unwrap_err()
                    .contains("such as 3=2")
            );
        }
        assert_eq!(seconds("0.5").unwrap().as_millis(), 500);
        for text in ["0", "-1", "nan", "1e99", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
