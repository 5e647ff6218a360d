//! A machine as one line of text, short for regular numbering and always lossless: published by a
//! node so that plans for it can be made elsewhere.
//!
//! `cpus=0-255 core=0-127x2 l3=0-15*8x2 numa=0-1*64x2 distances=1,4,10,50,100,200,200`: the ids,
//! then the domain of each cpu per level as encoded by [`encode_run_length`]. A missing level has
//! the same domains as the next inner level, a missing `core` one core per cpu, numbered from 0.
//! `capacity` is omitted if all cores have the maximum, `distances` (in the order of
//! [`Level::ALL`]) if the machine's own are unknown.

use crate::limits::{TOPOLOGY_TEXT_BYTES_MAX, TOPOLOGY_TEXT_CPUS_MAX};
use crate::run_length::{RunLengthError, decode_run_length, encode_run_length};
use crate::{
    CAPACITY_MAX, Cpu, CpuSet, CpuSetError, Distances, DistancesError, Level, Topology,
    TopologyError,
};

/// Error of parsing a topology text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyTextError {
    #[error("the topology has {bytes} bytes, more than {TOPOLOGY_TEXT_BYTES_MAX}")]
    TooLong { bytes: usize },
    /// A part is not `NAME=VALUE`.
    #[error("{part:?} is not NAME=VALUE: a topology looks like cpus=0-7 core=0-3x2 l3=0*8")]
    NotAField {
        /// The invalid part.
        part: String,
    },
    #[error(
        "the topology has an unknown field {name:?}: it may be from a newer version; use that \
         version's albacore"
    )]
    Unknown { name: String },
    #[error("the topology has the field {name} twice")]
    Twice { name: &'static str },
    #[error("the topology has no field cpus")]
    NoCpus,
    #[error("cpus={value}")]
    Cpus {
        /// The invalid value.
        value: String,
        #[source]
        source: CpuSetError,
    },
    #[error("{name}={value}")]
    Numbers {
        name: &'static str,
        /// The invalid value.
        value: String,
        #[source]
        source: RunLengthError,
    },
    #[error("{name} has {numbers} numbers, but cpus has {cpus} cpus")]
    OtherCount {
        name: &'static str,
        numbers: usize,
        cpus: usize,
    },
    #[error("capacity {capacity} is out of range: write numbers from 1 to {CAPACITY_MAX}")]
    Capacity { capacity: u32 },
    #[error(
        "distances={value} is not a list of {} numbers of cycles such as 1,4,10,50,100,200,200",
        Level::ALL.len()
    )]
    Distances {
        /// The invalid value.
        value: String,
    },
    /// The distances do not form a tree.
    #[error("distances")]
    Fall(#[from] DistancesError),
    /// The levels do not form a valid machine.
    #[error("the fields do not describe a valid machine")]
    Machine(#[from] TopologyError),
}

const CPUS: &str = "cpus";
const CAPACITY: &str = "capacity";
const DISTANCES: &str = "distances";

/// Name of a level, and accessor of a cpu's domain at that level.
type TextLevel = (&'static str, fn(&Cpu) -> u32);

/// The levels in the text, innermost first.
const LEVELS: [TextLevel; 5] = [
    ("core", |cpu| cpu.core),
    ("l2", |cpu| cpu.l2),
    ("l3", |cpu| cpu.l3),
    ("numa", |cpu| cpu.numa),
    ("package", |cpu| cpu.package),
];

/// Formats a machine. The text of an irregularly numbered machine may exceed the length that
/// [`parse_topology_text`] accepts.
pub fn topology_text(machine: &Topology) -> String {
    let cpus = machine.cpus();
    let mut fields = vec![format!("{CPUS}={}", machine.cpuset())];
    let mut inside = (0..).take(cpus.len()).collect::<Vec<u32>>();
    for (name, domain) in LEVELS {
        let domains: Vec<u32> = cpus.iter().map(domain).collect();
        if domains != inside {
            fields.push(format!("{name}={}", encode_run_length(&domains)));
        }
        inside = domains;
    }
    if cpus.iter().any(|cpu| cpu.capacity != CAPACITY_MAX) {
        let capacities: Vec<u32> = cpus.iter().map(|cpu| cpu.capacity.into()).collect();
        fields.push(format!("{CAPACITY}={}", encode_run_length(&capacities)));
    }
    if machine.has_node_distances() {
        let distances = machine.distances();
        let cycles = Level::ALL.map(|level| distances.at(level).to_string());
        fields.push(format!("{DISTANCES}={}", cycles.join(",")));
    }
    fields.join(" ")
}

/// Parses a text of [`topology_text`].
///
/// # Errors
/// The error contains the field and the problem.
pub fn parse_topology_text(text: &str) -> Result<Topology, TopologyTextError> {
    let bytes = text.len();
    if bytes > TOPOLOGY_TEXT_BYTES_MAX {
        return Err(TopologyTextError::TooLong { bytes });
    }
    let fields = Fields::of(text)?;
    let value = fields.get(CPUS).ok_or(TopologyTextError::NoCpus)?;
    let ids: CpuSet = value.parse().map_err(|source| TopologyTextError::Cpus {
        value: value.to_owned(),
        source,
    })?;
    let count = ids.len();
    let numbers = |name: &'static str| fields.numbers(name, count);
    let mut domains = vec![(0..).take(count).collect::<Vec<u32>>()];
    for (name, _) in LEVELS {
        let inside = domains.last().cloned().unwrap_or_default();
        domains.push(numbers(name)?.unwrap_or(inside));
    }
    let fastest = || vec![CAPACITY_MAX.into(); count];
    let capacities = numbers(CAPACITY)?.unwrap_or_else(fastest);
    let mut cpus = Vec::with_capacity(count);
    for (at, id) in ids.iter().enumerate() {
        cpus.push(Cpu {
            id,
            core: domains[1][at],
            l2: domains[2][at],
            l3: domains[3][at],
            numa: domains[4][at],
            package: domains[5][at],
            capacity: capacity_of(capacities[at])?,
        });
    }
    let machine = Topology::new(cpus)?;
    Ok(match fields.get(DISTANCES) {
        Some(list) => machine.with_distances(distances_of(list)?),
        None => machine,
    })
}

fn capacity_of(capacity: u32) -> Result<u16, TopologyTextError> {
    let known = u16::try_from(capacity).ok();
    let known = known.filter(|known| (1..=CAPACITY_MAX).contains(known));
    known.ok_or(TopologyTextError::Capacity { capacity })
}

fn distances_of(list: &str) -> Result<Distances, TopologyTextError> {
    let refused = || TopologyTextError::Distances {
        value: list.to_owned(),
    };
    let cycles: Result<Vec<u32>, _> = list.split(',').map(str::parse).collect();
    let cycles = <[u32; Level::ALL.len()]>::try_from(cycles.map_err(|_| refused())?);
    let [cpu, l1, l2, l3, numa, package, machine] = cycles.map_err(|_| refused())?;
    let distances = Distances {
        cpu,
        l1,
        l2,
        l3,
        numa,
        package,
        machine,
    };
    distances.validate()?;
    Ok(distances)
}

/// The values of the fields by name.
struct Fields<'a>(Vec<(&'static str, &'a str)>);

impl<'a> Fields<'a> {
    fn of(text: &'a str) -> Result<Self, TopologyTextError> {
        let mut fields: Vec<(&'static str, &str)> = Vec::new();
        for part in text.split(' ') {
            let field = part.split_once('=');
            let (name, value) = field.ok_or_else(|| TopologyTextError::NotAField {
                part: part.to_owned(),
            })?;
            let levels = LEVELS.iter().map(|(name, _)| *name);
            let mut known = levels.chain([CPUS, CAPACITY, DISTANCES]);
            let known = known.find(|known| *known == name);
            let name = known.ok_or_else(|| TopologyTextError::Unknown {
                name: name.to_owned(),
            })?;
            if fields.iter().any(|(before, _)| *before == name) {
                return Err(TopologyTextError::Twice { name });
            }
            fields.push((name, value));
        }
        Ok(Self(fields))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        let field = self.0.iter().find(|(known, _)| *known == name);
        field.map(|(_, value)| *value)
    }

    /// The numbers of a field, one per cpu; `None` if the field is missing.
    fn numbers(
        &self,
        name: &'static str,
        cpus: usize,
    ) -> Result<Option<Vec<u32>>, TopologyTextError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let parsed = decode_run_length(value, TOPOLOGY_TEXT_CPUS_MAX);
        let numbers = parsed.map_err(|source| TopologyTextError::Numbers {
            name,
            value: value.to_owned(),
            source,
        })?;
        if numbers.len() != cpus {
            let numbers = numbers.len();
            return Err(TopologyTextError::OtherCount {
                name,
                numbers,
                cpus,
            });
        }
        Ok(Some(numbers))
    }
}

#[cfg(test)]
mod tests;
