//! A mapping as one line of text: `4x6:0-23` is 4 workers with 6 threads each, followed by the cpu
//! of each thread, ordered by worker and rank, as encoded by [`encode_run_length`].

use albacore_solver::Mapping;
use albacore_topology::{CpuId, CpuSet, RunLengthError, decode_run_length, encode_run_length};

use crate::limits::MAPPING_THREADS_MAX;

/// Error of parsing a mapping.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MappingTextError {
    /// The prefix is not a valid size.
    #[error("{text:?} is not WORKERSxTHREADS:CPUS, as in 4x6:0-23")]
    Size {
        /// The whole text.
        text: String,
    },
    #[error("cpus of the mapping")]
    Cpus(#[from] RunLengthError),
    /// A cpu id above the kernel's maximum.
    #[error(
        "cpu {cpu} of the mapping is out of range: the largest cpu id is {}",
        CpuSet::MAX_ID
    )]
    TooLarge { cpu: u32 },
    /// The number of cpus differs from the number of threads.
    #[error("the mapping has {cpus} cpus for {workers} x {threads} threads")]
    OtherCount {
        cpus: usize,
        workers: u16,
        threads: u16,
    },
}

/// Formats a mapping.
pub fn mapping_text(mapping: &Mapping) -> String {
    let threads = usize::from(mapping.threads.max(1));
    let workers = mapping.cpus.len() / threads;
    let cpus: Vec<u32> = mapping.cpus.iter().map(|cpu| cpu.0.into()).collect();
    format!("{workers}x{threads}:{}", encode_run_length(&cpus))
}

/// Parses a text of [`mapping_text`].
///
/// # Errors
/// The error describes the problem.
pub fn parse_mapping_text(text: &str) -> Result<Mapping, MappingTextError> {
    let size = text.split_once(':').and_then(|(size, cpus)| {
        let (workers, threads) = size.split_once('x')?;
        let number = |digits: &str| digits.parse::<u16>().ok().filter(|&number| number > 0);
        Some((number(workers)?, number(threads)?, cpus))
    });
    let (workers, threads, cpus) = size.ok_or_else(|| MappingTextError::Size {
        text: text.to_owned(),
    })?;
    let cpus = decode_run_length(cpus, MAPPING_THREADS_MAX)?;
    if cpus.len() != usize::from(workers) * usize::from(threads) {
        let cpus = cpus.len();
        return Err(MappingTextError::OtherCount {
            cpus,
            workers,
            threads,
        });
    }
    let id = |cpu: u32| match u16::try_from(cpu) {
        Ok(id) if id <= CpuSet::MAX_ID => Ok(CpuId(id)),
        _ => Err(MappingTextError::TooLarge { cpu }),
    };
    let cpus: Result<Vec<CpuId>, MappingTextError> = cpus.into_iter().map(id).collect();
    Ok(Mapping {
        threads,
        cpus: cpus?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_name_the_invalid_part() {
        for (text, words) in [
            ("", "WORKERSxTHREADS"),
            ("4:0-3", "4:0-3"),
            ("0x4:", "0x4:"),
            ("2x2:0-2", "3 cpus for 2 x 2"),
            ("1x1:9999", "cpu 9999"),
            ("1x1:a", "cpus of the mapping"),
        ] {
            let error = parse_mapping_text(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn every_mapping_round_trips(
            threads in 1..9_u16,
            workers in 1..9_u16,
            cpus in proptest::collection::vec(0..=CpuSet::MAX_ID, 64),
            is_regular: bool,
        ) {
            let size = usize::from(threads) * usize::from(workers);
            let cpu = |at: usize| if is_regular { at as u16 } else { cpus[at] };
            let mapping = Mapping { threads, cpus: (0..size).map(|at| CpuId(cpu(at))).collect() };
            prop_assert_eq!(parse_mapping_text(&mapping_text(&mapping)), Ok(mapping));
        }
    }
}
