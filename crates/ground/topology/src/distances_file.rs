//! File of measured distances: the machine, the distance of each level, and the matrix from which
//! they were averaged.

use serde::{Deserialize, Serialize};

use crate::{CpuId, Distances, DistancesError, Level, Topology};

/// Written by `albacore topology --measure` and read for planning.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistancesFile {
    /// [`Topology::hash64`] of the whole machine, as 16 hexadecimal digits.
    pub topology: String,
    /// Distances to use, in clock cycles.
    pub distances: Distances,
    /// The measurements, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<DistanceMatrix>,
}

/// Latencies between cpus, one way, in clock cycles; `None` for pairs that were not measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistanceMatrix {
    /// The cpu of each row and column.
    pub cpus: Vec<u16>,
    /// One list per row; the diagonal is ignored.
    pub cycles: Vec<Vec<Option<f64>>>,
}

/// Reason for rejecting a distances file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DistancesFileError {
    /// A field is missing or has an invalid value.
    #[error("not a distances file as written by albacore topology --measure --write FILE")]
    Field(#[from] serde_path_to_error::Error<serde_json::Error>),
    /// There is trailing data after the JSON object.
    #[error("not a distances file as written by albacore topology --measure --write FILE")]
    Json(#[from] serde_json::Error),
    /// The distances do not form a tree.
    #[error(transparent)]
    Distances(#[from] DistancesError),
    /// The matrix does not have one row and one column for each of its cpus.
    #[error("matrix.cycles is not {cpus} rows of {cpus} numbers, one for each of matrix.cpus")]
    NotSquare { cpus: usize },
    /// A cpu occurs twice.
    #[error("matrix.cpus lists cpu {cpu} twice: measure again")]
    Twice { cpu: u16 },
    /// The two cells of one pair differ.
    #[error(
        "matrix.cycles is asymmetric: cpus {a} and {b} are {forth} cycles apart, {b} and {a} \
         {back}: measure again"
    )]
    Asymmetric {
        a: u16,
        b: u16,
        /// The value in the file; `none` if not measured.
        forth: String,
        back: String,
    },
    /// A latency is negative or not a number.
    #[error("matrix.cycles: cpus {a} and {b} are {cycles} cycles apart: measure again")]
    Negative { a: u16, b: u16, cycles: f64 },
    /// The file was measured on a machine with other cpus, cores or caches.
    #[error(
        "topology is {given}, but this machine is {machine}: the file is from another machine, or \
         cpus went online or offline since; measure again with albacore topology --measure"
    )]
    OtherMachine { given: String, machine: String },
}

impl DistancesFile {
    /// Parses and validates a file.
    ///
    /// # Errors
    /// All variants except [`DistancesFileError::OtherMachine`].
    pub fn parse(text: &str) -> Result<Self, DistancesFileError> {
        let mut json = serde_json::Deserializer::from_str(text);
        let file: Self = serde_path_to_error::deserialize(&mut json)?;
        json.end()?;
        file.distances.validate()?;
        if let Some(matrix) = &file.matrix {
            matrix.validate()?;
        }
        Ok(file)
    }

    /// Serializes the file.
    ///
    /// # Errors
    /// Never fails for files that were parsed or measured.
    pub fn to_json(&self) -> Result<String, DistancesFileError> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// Returns the distances if the file was measured on this (whole) machine.
    ///
    /// # Errors
    /// It was measured on another machine.
    pub fn distances_of(&self, machine: &Topology) -> Result<Distances, DistancesFileError> {
        let hash = machine.hash_hex();
        if self.topology == hash {
            return Ok(self.distances);
        }
        Err(DistancesFileError::OtherMachine {
            given: self.topology.clone(),
            machine: hash,
        })
    }

    /// Averages a matrix by level, rounded to cycles. A level that the machine does not have, or of
    /// which no pair was measured, keeps the machine's own distance. No distance is below that of
    /// the nearer level.
    pub fn measured(machine: &Topology, matrix: DistanceMatrix) -> Self {
        let own = machine.distances();
        let mut sums = [(0.0, 0.0); Level::ALL.len()];
        for (a, b, cycles) in matrix.pairs() {
            if let (Some(a), Some(b)) = (machine.cpu(CpuId(a)), machine.cpu(CpuId(b))) {
                let (sum, count) = &mut sums[Level::of(a, b) as usize];
                *sum += cycles;
                *count += 1.0;
            }
        }
        let mut inner = own.cpu;
        let mut mean = |level: Level| {
            let (sum, count) = sums[level as usize];
            let cycles = if count > 0.0 {
                (sum / count).round() as u32
            } else {
                own.at(level)
            };
            inner = cycles.max(inner);
            inner
        };
        Self {
            topology: machine.hash_hex(),
            distances: Distances {
                cpu: own.cpu,
                l1: mean(Level::L1),
                l2: mean(Level::L2),
                l3: mean(Level::L3),
                numa: mean(Level::Numa),
                package: mean(Level::Package),
                machine: mean(Level::Machine),
            },
            matrix: Some(matrix),
        }
    }
}

impl DistanceMatrix {
    /// The measured pairs, each once.
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
        let mut known = std::collections::BTreeSet::new();
        if let Some(&cpu) = self.cpus.iter().find(|&cpu| !known.insert(cpu)) {
            return Err(DistancesFileError::Twice { cpu });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_synthetic;

    const MATRIX: &str = r#"{"cpus": [0, 1], "cycles": [[null, 70.5], [70.5, null]]}"#;

    fn file(topology: &str, l3: &str, matrix: &str) -> String {
        format!(
            r#"{{"topology": "{topology}", "distances": {{"cpu": 1, "l1": 4, "l2": 10, "l3": {l3},
            "numa": 100, "package": 200, "machine": 200}}, "matrix": {matrix}}}"#
        )
    }

    #[test]
    fn a_file_is_read_back_and_is_of_one_machine() {
        let machine = parse_synthetic("l3:1 core:2 pu:2").unwrap();
        let file = DistancesFile::parse(&file(&machine.hash_hex(), "70", MATRIX)).unwrap();
        let text = serde_json::to_string(&file).unwrap();
        assert_eq!(DistancesFile::parse(&text).unwrap(), file);
        assert_eq!(file.distances_of(&machine).unwrap().l3, 70);
        let other = parse_synthetic("l3:1 core:4 pu:1").unwrap();
        let error = file.distances_of(&other).unwrap_err().to_string();
        assert!(error.contains(&other.hash_hex()), "{error}");
    }

    /// An error with its sources, as commands print it.
    fn with_sources(error: &dyn std::error::Error) -> String {
        let sources = std::iter::successors(Some(error), |error| error.source());
        sources.map(|error| format!("{error}\n")).collect()
    }

    #[test]
    fn the_cause_of_an_invalid_file_is_shown_once() {
        for (text, cause) in [
            (file("0", "-5", MATRIX), "invalid value: integer `-5`"),
            (file("0", "70", MATRIX) + "}", "trailing characters"),
        ] {
            let error = with_sources(&DistancesFile::parse(&text).unwrap_err());
            assert_eq!(error.matches(cause).count(), 1, "{error}");
        }
    }

    #[test]
    fn errors_name_the_invalid_part_of_a_file() {
        let asymmetric = MATRIX.replace("[70.5, null]", "[71, null]");
        let missing = MATRIX.replace("[70.5, null]", "[null, null]");
        let negative = MATRIX.replace("70.5", "-1");
        let short = MATRIX.replace(", [70.5, null]", "");
        for (text, words) in [
            (file("0", "-5", MATRIX), &["distances.l3", "-5"][..]),
            (file("0", "1.5", MATRIX), &["distances.l3", "1.5"]),
            (file("0", "70, \"l4\": 1", MATRIX), &["distances", "l4"]),
            (file("0", "300", MATRIX), &["numa is 100", "l3 is 300"]),
            (file("0", "70", &asymmetric), &["0 and 1", "70.5", "71"]),
            (file("0", "70", &missing), &["asymmetric", "none"]),
            (file("0", "70", &negative), &["0 and 1", "-1 cycles"]),
            (file("0", "70", &short), &["2 rows of 2"]),
            (file("0", "70", MATRIX) + "}", &["trailing"]),
            ("l3: 70".to_owned(), &["--measure --write"]),
        ] {
            let error = with_sources(&DistancesFile::parse(&text).unwrap_err());
            for word in words {
                assert!(error.contains(word), "{word}: {error}");
            }
        }
    }

    #[test]
    fn levels_are_means_and_none_is_below_the_level_inside() {
        let machine = parse_synthetic("pack:2 l3:1 core:1 pu:2").unwrap();
        let cycles = |row: [f64; 4]| row.map(Some).to_vec();
        let matrix = DistanceMatrix {
            cpus: vec![0, 1, 2, 3],
            cycles: vec![
                cycles([0.0, 20.0, 300.0, 310.0]),
                cycles([20.0, 0.0, 290.0, 301.0]),
                cycles([300.0, 290.0, 0.0, 22.2]),
                cycles([310.0, 301.0, 22.2, 0.0]),
            ],
        };
        let measured = DistancesFile::measured(&machine, matrix).distances;
        assert_eq!((measured.cpu, measured.l1, measured.l2), (1, 21, 21));
        assert_eq!((measured.l3, measured.package), (50, 200));
        assert_eq!(measured.machine, 300);
        measured.validate().unwrap();
    }
}
