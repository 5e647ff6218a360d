//! Distance between two cpus by the nearest domain that they share, and user overrides of the
//! defaults.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Level;
use crate::limits::DISTANCE_MAX;

/// Distance between two cpus in clock cycles: the latency of the nearest cache or memory that they
/// share. Source: seed article "Tuna", section Formulation (after Bryant and O'Hallaron), for cpu
/// to L3; a remote NUMA node is twice as far as the local one, as in the kernel's defaults
/// (`LOCAL_DISTANCE` 10, `REMOTE_DISTANCE` 20).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distances {
    pub cpu: u32,
    /// Two cpus of one core, i.e. SMT siblings (shared L1).
    pub l1: u32,
    /// Two cores with a shared L2.
    pub l2: u32,
    /// Two cores with a shared L3.
    pub l3: u32,
    /// Two L3 domains of one NUMA node.
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

/// Reason for rejecting distances.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DistancesError {
    /// A distance is smaller than that of a nearer level, so the distances would not form a tree.
    #[error(
        "distance {outer} is {outer_cycles} but the nearer {inner} is {inner_cycles}: distances \
         must not decrease in the order cpu, l1, l2, l3, numa, package, machine"
    )]
    Fall {
        /// Name of the nearer level.
        inner: &'static str,
        inner_cycles: u32,
        /// Name of the farther level.
        outer: &'static str,
        outer_cycles: u32,
    },
    /// A distance exceeds its limit.
    #[error(
        "distance {level} is {cycles} cycles, more than {DISTANCE_MAX}: scale all distances down"
    )]
    TooLarge { level: &'static str, cycles: u32 },
    /// An element of a list is not `LEVEL=CYCLES`.
    #[error(
        "{part:?} is not LEVEL=CYCLES: write a list such as l3=60,machine=300 of the levels l1, l2, \
         l3, numa, package and machine"
    )]
    Part {
        /// The invalid element.
        part: String,
    },
}

impl Distances {
    /// Rejects distances that decrease from a nearer to a farther level, or exceed the limit.
    ///
    /// # Errors
    /// The error contains the levels and their cycles.
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
            return Err(DistancesError::TooLarge {
                level: "machine",
                cycles: self.machine,
            });
        }
        Ok(())
    }
}

/// User-defined distances of some levels, in clock cycles. The other levels keep the machine's own
/// distances, adjusted as far as needed to stay monotonic.
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
    /// Rejects distances that decrease from a nearer to a farther level, or exceed the limit.
    ///
    /// # Errors
    /// The error contains the levels and their cycles.
    pub fn validate(&self) -> Result<(), DistancesError> {
        let mut inner = None;
        for (outer, cycles) in self.levels() {
            let Some(outer_cycles) = cycles else { continue };
            if outer_cycles > DISTANCE_MAX {
                return Err(DistancesError::TooLarge {
                    level: outer,
                    cycles: outer_cycles,
                });
            }
            if let Some((inner, inner_cycles)) = inner
                && outer_cycles < inner_cycles
            {
                return Err(DistancesError::Fall {
                    inner,
                    inner_cycles,
                    outer,
                    outer_cycles,
                });
            }
            inner = Some((outer, outer_cycles));
        }
        Ok(())
    }

    /// Applies the overrides to `base`. The other levels of `base` are raised to overrides of
    /// nearer levels and lowered to overrides of farther levels. The result is valid if both inputs
    /// are.
    pub fn apply_to(&self, base: Distances) -> Distances {
        let own = [
            base.l1,
            base.l2,
            base.l3,
            base.numa,
            base.package,
            base.machine,
        ];
        let given = self.levels().map(|(_, cycles)| cycles);
        let mut cycles = own;
        for (level, cycles) in cycles.iter_mut().enumerate() {
            let inside = given[..level].iter().flatten().max();
            let outside = given[level..].iter().flatten().min();
            *cycles = given[level].unwrap_or_else(|| {
                let raised = inside.map_or(*cycles, |&inside| inside.max(*cycles));
                outside.map_or(raised, |&outside| outside.min(raised))
            });
        }
        let [l1, l2, l3, numa, package, machine] = cycles;
        Distances {
            cpu: base.cpu.min(l1),
            l1,
            l2,
            l3,
            numa,
            package,
            machine,
        }
    }

    fn levels(&self) -> [(&'static str, Option<u32>); 6] {
        [
            ("l1", self.l1),
            ("l2", self.l2),
            ("l3", self.l3),
            ("numa", self.numa),
            ("package", self.package),
            ("machine", self.machine),
        ]
    }
}

/// In the format accepted by the parser; empty if no level is given.
impl fmt::Display for DistanceOverrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = self.levels().into_iter();
        let given = given.filter_map(|(level, cycles)| Some(format!("{level}={}", cycles?)));
        f.write_str(&given.collect::<Vec<_>>().join(","))
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
        overrides.validate()?;
        Ok(overrides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(text: &str) -> Distances {
        let overrides: DistanceOverrides = text.parse().unwrap();
        overrides.apply_to(Distances::default())
    }

    #[test]
    fn levels_that_are_not_given_keep_their_own_as_far_as_the_order_allows() {
        let given = Distances {
            l3: 60,
            machine: 300,
            ..Distances::default()
        };
        assert_eq!(over("l3=60, machine=300"), given);
        let parsed: DistanceOverrides = "l3=60, machine=300".parse().unwrap();
        assert_eq!(parsed.to_string(), "l3=60,machine=300");
        let raised = Distances {
            l3: 150,
            numa: 150,
            ..Distances::default()
        };
        assert_eq!(over("l3=150"), raised);
        let lowered = Distances {
            l3: 30,
            numa: 30,
            ..Distances::default()
        };
        assert_eq!(over("numa=30"), lowered);
        assert_eq!(over("l1=0").cpu, 0);
        for text in ["machine=2", "l1=1000", "l2=7,package=9"] {
            over(text).validate().unwrap();
        }
    }

    #[test]
    fn given_levels_that_fall_or_are_too_far_are_refused() {
        let refused = |text: &str| text.parse::<DistanceOverrides>().unwrap_err().to_string();
        let error = refused("l3=500,numa=400");
        assert!(
            error.contains("numa is 400 but the nearer l3 is 500"),
            "{error}"
        );
        let error = refused("l2=9,l3=2000000");
        assert!(
            error.contains("l3 is 2000000 cycles, more than 1000000"),
            "{error}"
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
