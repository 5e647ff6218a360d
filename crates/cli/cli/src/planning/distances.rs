//! `--distances`: overrides by level, or a file written by `albacore topology --measure`.

use std::path::{Path, PathBuf};

use albacore_command::{Failure, sentence};
use albacore_topology::{DistanceOverrides, Distances, DistancesFile, Topology};

use super::read_option_file;
use crate::args::DistancesArg;
use crate::limits::DISTANCES_BYTES_MAX;

/// The distances of a plan and their source.
#[derive(Clone, Debug)]
pub(crate) struct PlanDistances {
    pub(crate) cycles: Distances,
    pub(crate) source: DistancesSource,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DistancesSource {
    Defaults,
    /// The defaults, on a machine that does not report the distances of its NUMA nodes.
    DefaultsOfUnknownNodes,
    /// The defaults, scaled by the distances of the NUMA nodes.
    Nodes,
    Option,
    File(PathBuf),
    /// Those of the machine or of the file of `--distances`, because the deployments request
    /// different ones.
    Deployments,
    /// Those of the machine or of the file of `--distances`: deployments ask for different ones.
    DeploymentsDiffer,
}

/// The distances of the option, or else of the (whole) machine.
///
/// # Errors
/// Usage: the file cannot be read or is invalid.
pub(super) fn plan_distances(
    arg: Option<&DistancesArg>,
    machine: &Topology,
) -> Result<PlanDistances, Failure> {
    let own = machine.distances();
    let (cycles, source) = match arg {
        Some(DistancesArg::Overrides(overrides)) => {
            (overrides.apply_to(own), DistancesSource::Option)
        }
        Some(DistancesArg::File(path)) => {
            let cycles = read_distances(path, machine)?;
            (cycles, DistancesSource::File(path.clone()))
        }
        None if machine.has_node_distances() => (own, DistancesSource::Nodes),
        None if machine.node_count() > 1 => (own, DistancesSource::DefaultsOfUnknownNodes),
        None => (own, DistancesSource::Defaults),
    };
    Ok(PlanDistances { cycles, source })
}

impl PlanDistances {
    /// Applies the distances requested by deployments if all of them request the same, as on a
    /// node. Levels given on the command line take precedence.
    pub(super) fn of_deployments(self, requested: &[DistanceOverrides]) -> Self {
        let mut requested = requested
            .iter()
            .map(|overrides| overrides.apply_to(self.cycles));
        let Some(first) = requested
            .next()
            .filter(|_| self.source != DistancesSource::Option)
        else {
            return self;
        };
        let (cycles, source) = match requested.all(|other| other == first) {
            true if first == self.cycles => return self,
            true => (first, DistancesSource::Deployments),
            false => (self.cycles, DistancesSource::DeploymentsDiffer),
        };
        Self { cycles, source }
    }
}

fn read_distances(path: &Path, machine: &Topology) -> Result<Distances, Failure> {
    let remedy = "give a file that `albacore topology --measure --write FILE` wrote, or levels \
                   such as l3=60,machine=300";
    let text = read_option_file("--distances", path, DISTANCES_BYTES_MAX, remedy)?;
    let read = DistancesFile::parse(&text).and_then(|file| file.distances_of(machine));
    read.map_err(|e| {
        let path = path.display();
        Failure::Usage(format!("--distances {path}: {}", sentence(&e)))
    })
}
