//! The file of measured distances: which machine, the distance of each level, and the matrix that
//! they are means of.

use serde::{Deserialize, Serialize};

use crate::{CpuId, Distances, DistancesError, Topology};

/// What `albacore topology --measure` writes, and what planning takes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistancesFile {
    /// [`Topology::hash64`] of the whole machine, as 16 hexadecimal digits.
    pub topology: String,
    /// Clock cycles: what is used.
    pub distances: Distances,
    /// What was measured, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<DistanceMatrix>,
}

/// Latencies between cpus, clock cycles one way; `None` where a pair was not measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistanceMatrix {
    /// The cpu of each row and column.
    pub cpus: Vec<u16>,
    /// Row by row; the diagonal is not looked at.
    pub cycles: Vec<Vec<Option<f64>>>,
}

/// Why a file of distances is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DistancesFileError {
    /// The text is not such a file.
    #[error(
        "not a file of distances ({0}): write one with albacore topology --measure --write FILE"
    )]
    Json(#[from] serde_json::Error),
    /// The levels do not form a tree.
    #[error(transparent)]
    Distances(#[from] DistancesError),
    /// The matrix has not one row and one column for each of its cpus.
    #[error("matrix.cycles is not {cpus} rows of {cpus} numbers, one for each of matrix.cpus")]
    NotSquare { cpus: usize },
    /// Two cells that are the same pair differ.
    #[error(
        "matrix.cycles is asymmetric: cpus {a} and {b} are {forth} cycles apart, {b} and {a} \
         {back}: measure again"
    )]
    Asymmetric {
        a: u16,
        b: u16,
        /// As written; `none` if not measured.
        forth: String,
        back: String,
    },
    /// A latency is below zero or no number.
    #[error("matrix.cycles: cpus {a} and {b} are {cycles} cycles apart: measure again")]
    Negative { a: u16, b: u16, cycles: f64 },
    /// The file is of a machine with other cpus, cores or caches.
    #[error(
        "topology is {given}, but this machine is {machine}: the file is of another machine, or \
         cpus went on or off since; measure again with albacore topology --measure"
    )]
    OtherMachine { given: String, machine: String },
}

impl DistancesFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// All but [`DistancesFileError::OtherMachine`].
    pub fn parse(text: &str) -> Result<Self, DistancesFileError> {
        let file: Self = serde_json::from_str(text)?;
        file.distances.validate()?;
        if let Some(matrix) = &file.matrix {
            matrix.validate()?;
        }
        Ok(file)
    }

    /// The text of the file.
    ///
    /// # Errors
    /// Never for files that were parsed or measured.
    pub fn to_json(&self) -> Result<String, DistancesFileError> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// The distances, if the file is of this (whole) machine.
    ///
    /// # Errors
    /// It is of another.
    pub fn distances_of(&self, machine: &Topology) -> Result<Distances, DistancesFileError> {
        let hash = machine.hash_text();
        if self.topology == hash {
            return Ok(self.distances);
        }
        Err(DistancesFileError::OtherMachine {
            given: self.topology.clone(),
            machine: hash,
        })
    }

    /// The means of a matrix by level, in whole cycles. A level that the machine does not have, or
    /// of which no pair was measured, keeps the machine's own distance; none is below the level
    /// inside it.
    pub fn measured(machine: &Topology, matrix: DistanceMatrix) -> Self {
        let own = machine.distances();
        // equal distances would hide which level a pair is of
        let marks = Distances {
            cpu: 0,
            l1: 1,
            l2: 2,
            l3: 3,
            numa: 4,
            package: 5,
            machine: 6,
        };
        let mut sums = [(0.0, 0.0); 7];
        for (a, b, cycles) in matrix.pairs() {
            if let (Some(a), Some(b)) = (machine.cpu(CpuId(a)), machine.cpu(CpuId(b))) {
                let level: u32 = Topology::distance(a, b, &marks);
                let (sum, count) = &mut sums[level as usize];
                *sum += cycles;
                *count += 1.0;
            }
        }
        let mut inner = own.cpu;
        let mut mean = |level: usize, own: u32| {
            let (sum, count) = sums[level];
            let cycles = if count > 0.0 {
                (sum / count).round() as u32
            } else {
                own
            };
            inner = cycles.max(inner);
            inner
        };
        Self {
            topology: machine.hash_text(),
            distances: Distances {
                cpu: own.cpu,
                l1: mean(1, own.l1),
                l2: mean(2, own.l2),
                l3: mean(3, own.l3),
                numa: mean(4, own.numa),
                package: mean(5, own.package),
                machine: mean(6, own.machine),
            },
            matrix: Some(matrix),
        }
    }
}

impl DistanceMatrix {
    /// The pairs that were measured, each once.
    pub fn pairs(&self) -> impl Iterator<Item = (u16, u16, f64)> + '_ {
        let row = |(i, (&a, row)): (usize, (&u16, _))| {
            let row: &Vec<Option<f64>> = row;
            let others = self.cpus[i + 1..].iter().zip(&row[i + 1..]);
            others.filter_map(move |(&b, &cycles)| Some((a, b, cycles?)))
        };
        self.cpus.iter().zip(&self.cycles).enumerate().flat_map(row)
    }

    fn validate(&self) -> Result<(), DistancesFileError> {
        let cpus = self.cpus.len();
        if self.cycles.len() != cpus || self.cycles.iter().any(|row| row.len() != cpus) {
            return Err(DistancesFileError::NotSquare { cpus });
        }
        for (i, &a) in self.cpus.iter().enumerate() {
            for (j, &b) in self.cpus.iter().enumerate().skip(i + 1) {
                let (forth, back) = (self.cycles[i][j], self.cycles[j][i]);
                if forth != back {
                    let text = |cycles: Option<f64>| {
                        cycles.map_or_else(|| "none".to_owned(), |cycles| cycles.to_string())
                    };
                    let (forth, back) = (text(forth), text(back));
                    return Err(DistancesFileError::Asymmetric { a, b, forth, back });
                }
                if let Some(cycles) = forth.filter(|cycles| *cycles < 0.0) {
                    return Err(DistancesFileError::Negative { a, b, cycles });
                }
            }
        }
        Ok(())
    }
}
