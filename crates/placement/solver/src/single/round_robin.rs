//! The baseline of the source article: threads are assigned to cpus in cyclic order.
//!
//! Worker by worker and rank by rank, thread k is placed on the k-th cpu (ascending ids) modulo C.
//! This ignores caches and mains and may break any rule except (1), (3) and (8); broken rules are
//! listed in [`relaxed`](crate::Certificate::relaxed). The result is `optimal` only if it keeps
//! every rule and meets the bound. The bound covers the mappings that keep the rules; a round robin
//! that gains value by breaking them raises it to its own value.

use albacore_mapping::report;

use crate::error::validate;
use crate::single::allowed::Allowed;
use crate::single::bound::upper_bound;
use crate::single::domains::Domains;
use crate::single::volumes::volumes;
use crate::{
    Certificate, CheckReport, Mapping, Problem, ProblemError, Proof, ProvenBound, Solution,
    counting_bound,
};

/// Assigns threads to cpus in cyclic order.
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
    let report = report(problem, &mapping);
    let certificate = Certificate::of(report.objective, upper(problem, &report), report.relaxed);
    Ok(Solution {
        mapping,
        certificate,
    })
}

/// Upper bound of all mappings that keep the rules; where cores differ in speed, of all mappings,
/// because the counts are those of equally fast cores.
fn upper(problem: &Problem, report: &CheckReport) -> ProvenBound {
    if !problem.topology.is_uniform() {
        let (bound, proof) = (counting_bound(problem, &report.relaxed), Proof::None);
        return ProvenBound { bound, proof };
    }
    let domains = Domains::of(problem);
    let bound = upper_bound(&domains, &Allowed::by(&domains, &volumes(&domains)));
    let proof = match report.relaxed.is_empty() {
        true => Proof::Bound,
        false => Proof::None,
    };
    ProvenBound { bound, proof }
}
