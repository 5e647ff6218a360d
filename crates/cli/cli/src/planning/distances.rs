//! `--distances`: overrides of levels, or a file that `albacore topology --measure` wrote.

use std::path::{Path, PathBuf};

use albacore_command::{Failure, sentence};
use albacore_topology::{DistanceOverrides, Distances, DistancesFile, Topology};

use super::read_option_file;
use crate::args::DistancesArg;
use crate::limits::DISTANCES_BYTES_MAX;

/// The distances of a plan, and where they are from.
#[derive(Clone, Debug)]
pub(crate) struct PlanDistances {
    pub(crate) cycles: Distances,
    pub(crate) source: DistancesSource,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DistancesSource {
    Defaults,
    /// The defaults, on a machine whose NUMA nodes do not say how far apart they are.
    DefaultsOfUnknownNodes,
    /// The defaults, scaled by the distances of the NUMA nodes.
    Nodes,
    Option,
    File(PathBuf),
    /// `spec.placement.distances` of all deployments.
    Deployments,
    /// Those of the machine or of the file of `--distances`: deployments ask for different ones.
    DeploymentsDiffer,
}

/// Those of the option, else of the (whole) machine.
///
/// # Errors
/// Usage: the file cannot be read, or is refused.
pub(super) fn plan_distances(
    arg: Option<&DistancesArg>,
    machine: &Topology,
) -> Result<PlanDistances, Failure> {
    let own = machine.distances();
    let (cycles, source) = match arg {
        Some(DistancesArg::Overrides(overrides)) => (overrides.over(own), DistancesSource::Option),
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
    /// With what deployments ask for, which holds if all ask for the same, as on a node. Levels of
    /// the command line replace it.
    pub(super) fn of_deployments(self, asked: &[DistanceOverrides]) -> Self {
        let mut asked = asked.iter().map(|overrides| overrides.over(self.cycles));
        let Some(first) = asked
            .next()
            .filter(|_| self.source != DistancesSource::Option)
        else {
            return self;
        };
        let (cycles, source) = match asked.all(|other| other == first) {
            true if first == self.cycles => return self,
            true => (first, DistancesSource::Deployments),
            false => (self.cycles, DistancesSource::DeploymentsDiffer),
        };
        Self { cycles, source }
    }
}

fn read_distances(path: &Path, machine: &Topology) -> Result<Distances, Failure> {
    let way_out = "give a file that `albacore topology --measure --write FILE` wrote, or levels \
                   such as l3=60,machine=300";
    let text = read_option_file("--distances", path, DISTANCES_BYTES_MAX, way_out)?;
    let read = DistancesFile::parse(&text).and_then(|file| file.distances_of(machine));
    read.map_err(|e| {
        let path = path.display();
        Failure::Usage(format!("--distances {path}: {}", sentence(&e)))
    })
}
