//! How far apart two cpus are, by the nearest domain that they share, and what a user puts in place
//! of the defaults.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Level;
use crate::limits::DISTANCE_MAX;

/// Distance between two cpus in clock cycles: the latency of the nearest cache or memory that they
/// share. Source: seed article "Tuna", section Formulation (after Bryant and O'Hallaron), for cpu
/// to L3; a remote NUMA node is twice as far as the own one, as in the kernel's defaults
/// (`LOCAL_DISTANCE` 10, `REMOTE_DISTANCE` 20).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distances {
    pub cpu: u32,
    /// Two cpus of one core (they share L1).
    pub l1: u32,
    /// Two cores that share L2.
    pub l2: u32,
    /// Two cores that share L3.
    pub l3: u32,
    /// Two L3 of one NUMA node.
    pub numa: u32,
    /// Two NUMA nodes of one package.
    pub package: u32,
    /// Two packages.
    pub machine: u32,
}

impl Default for Distances {
    fn default() -> Self {
        Self {
            cpu: 1,
            l1: 4,
            l2: 10,
            l3: 50,
            numa: 100,
            package: 200,
            machine: 200,
        }
    }
}

/// Why distances are refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DistancesError {
    /// A distance is smaller than that of a nearer level, so distances would not form a tree.
    #[error(
        "distance {outer} is {outer_cycles} but the nearer {inner} is {inner_cycles}: distances \
         must not fall from cpu over l1, l2, l3, numa and package to machine"
    )]
    Fall {
        /// Name of the nearer level.
        inner: &'static str,
        inner_cycles: u32,
        /// Name of the farther level.
        outer: &'static str,
        outer_cycles: u32,
    },
    /// A distance is beyond its limit.
    #[error("distance machine is {cycles} cycles, more than {DISTANCE_MAX}: scale the table down")]
    TooLarge { cycles: u32 },
    /// A part of a list that is not `LEVEL=CYCLES`.
    #[error(
        "{part:?} is not LEVEL=CYCLES: write a list such as l3=60,machine=300 of the levels l1, l2, \
         l3, numa, package and machine"
    )]
    Part {
        /// As written.
        part: String,
    },
}

impl Distances {
    /// Refuses distances that fall with the level, or are beyond the limit.
    ///
    /// # Errors
    /// Names the levels and their cycles.
    pub fn validate(&self) -> Result<(), DistancesError> {
        for pair in Level::ALL.windows(2) {
            let (inner, outer) = (pair[0], pair[1]);
            let (inner_cycles, outer_cycles) = (self.at(inner), self.at(outer));
            if outer_cycles < inner_cycles {
                return Err(DistancesError::Fall {
                    inner: inner.name(),
                    inner_cycles,
                    outer: outer.name(),
                    outer_cycles,
                });
            }
        }
        if self.machine > DISTANCE_MAX {
            let cycles = self.machine;
            return Err(DistancesError::TooLarge { cycles });
        }
        Ok(())
    }
}

/// Distances that a user gives for some levels, clock cycles; the machine's own hold for the
/// others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DistanceOverrides {
    pub l1: Option<u32>,
    pub l2: Option<u32>,
    pub l3: Option<u32>,
    pub numa: Option<u32>,
    pub package: Option<u32>,
    pub machine: Option<u32>,
}

impl DistanceOverrides {
    /// These where given, else those of `base`.
    ///
    /// # Errors
    /// Together they fall with the level, or are beyond the limit.
    pub fn over(&self, base: Distances) -> Result<Distances, DistancesError> {
        let distances = Distances {
            cpu: base.cpu,
            l1: self.l1.unwrap_or(base.l1),
            l2: self.l2.unwrap_or(base.l2),
            l3: self.l3.unwrap_or(base.l3),
            numa: self.numa.unwrap_or(base.numa),
            package: self.package.unwrap_or(base.package),
            machine: self.machine.unwrap_or(base.machine),
        };
        distances.validate()?;
        Ok(distances)
    }
}

/// Parses `l3=60,machine=300`.
impl FromStr for DistanceOverrides {
    type Err = DistancesError;

    fn from_str(text: &str) -> Result<Self, DistancesError> {
        let mut overrides = Self::default();
        for part in text.split(',') {
            let refused = || DistancesError::Part {
                part: part.to_owned(),
            };
            let (level, cycles) = part.split_once('=').ok_or_else(refused)?;
            let field = match level.trim() {
                "l1" => &mut overrides.l1,
                "l2" => &mut overrides.l2,
                "l3" => &mut overrides.l3,
                "numa" => &mut overrides.numa,
                "package" => &mut overrides.package,
                "machine" => &mut overrides.machine,
                _ => return Err(refused()),
            };
            let cycles = cycles.trim().parse().map_err(|_| refused())?;
            if field.replace(cycles).is_some() {
                return Err(refused());
            }
        }
        Ok(overrides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_replace_levels_and_keep_the_order() {
        let parsed: DistanceOverrides = "l3=60, machine=300".parse().unwrap();
        let distances = parsed.over(Distances::default()).unwrap();
        assert_eq!(
            (distances.l3, distances.numa, distances.machine),
            (60, 100, 300)
        );
        let falls: DistanceOverrides = "l3=500".parse().unwrap();
        let error = falls.over(Distances::default()).unwrap_err().to_string();
        assert!(
            error.contains("numa is 100 but the nearer l3 is 500"),
            "{error}"
        );
        let large: DistanceOverrides = "machine=1000001".parse().unwrap();
        assert_eq!(
            large.over(Distances::default()),
            Err(DistancesError::TooLarge { cycles: 1_000_001 })
        );
    }

    #[test]
    fn parts_that_are_no_level_are_named() {
        for text in [
            "",
            "l3",
            "l4=7",
            "cpu=2",
            "l3=-5",
            "l3=1.5",
            "l3=5,l3=6",
            "l3=5,",
        ] {
            let error = text.parse::<DistanceOverrides>().unwrap_err();
            assert!(
                matches!(error, DistancesError::Part { .. }),
                "{text}: {error}"
            );
        }
    }
}
