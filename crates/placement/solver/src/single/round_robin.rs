//! The baseline of the source article: threads over cpus in order, cyclically, whatever they do.
//!
//! Worker by worker and rank by rank, thread k goes to the k-th cpu (rising ids) modulo C. It knows
//! nothing of caches or of mains and may break any rule but (1), (3) and (8); what it breaks is
//! listed in [`relaxed`](crate::Certificate::relaxed). It is `optimal` only if it keeps every rule
//! and meets the bound. The bound is that of the mappings that keep the rules; a round robin that
//! gains value by breaking them raises it to its own.

use crate::error::validate;
use crate::single::allowed::Allowed;
use crate::single::bound::upper_bound;
use crate::single::domains::Domains;
use crate::single::volumes::volumes;
use crate::{Certificate, Mapping, Problem, ProblemError, Proof, ProvenBound, Solution, check};

/// Threads over cpus in order, cyclically.
///
/// # Errors
/// The problem is outside the limits or its distances fall with the level.
pub fn round_robin(problem: &Problem) -> Result<Solution, ProblemError> {
    validate(problem)?;
    let cpus = problem.topology.cpus();
    let slots = usize::from(problem.workers) * usize::from(problem.threads);
    let mapping = Mapping {
        threads: problem.threads,
        cpus: cpus.iter().map(|cpu| cpu.id).cycle().take(slots).collect(),
    };
    let report = check::report(problem, &mapping);
    let domains = Domains::of(problem);
    let bound = upper_bound(&domains, &Allowed::by(&domains, &volumes(&domains)));
    let proof = if report.relaxed.is_empty() {
        Proof::Bound
    } else {
        Proof::None
    };
    let certificate = Certificate::of(
        report.objective,
        ProvenBound { bound, proof },
        report.relaxed,
    );
    Ok(Solution {
        mapping,
        certificate,
    })
}
