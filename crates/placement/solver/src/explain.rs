//! Explains a mapping: the figures behind the sentences that the command line prints.
//!
//! **Problem.** "Optimal" does not convince a user who would have placed a thread elsewhere.
//! **Approach.** Everything is counted from the given mapping, however it was made: the
//! distribution of volume, mains and the threads of each worker, and what each of these could reach
//! alone (`group_bound`); the cost of every single exchange of two threads and of every single
//! shift of one, and the rules that it would break (`counted_mapping`); and the gain of a hill
//! climb if one rule is dropped (`single_changes`). [`explain_thread`] evaluates one thread on
//! every cpu, [`difference`] compares two mappings. **Proof sketch.** The optimum of a group alone
//! is exact, so the sum of the parts is a bound that a reader can follow: if the objective meets
//! it, nothing can be better. A gain without a rule is reached by an actual mapping, so it is a
//! lower bound. **Limits.** The runner-up is the best among single exchanges and shifts, not among
//! all mappings; a climb may stop at a local optimum. A rule that the mapping already breaks counts
//! as kept while it is broken no further; (2) is evaluated as if ranks were reassigned, as in the
//! solver.

mod checked_mapping;
mod counted_mapping;
mod difference;
mod error;
mod explanation;
mod group_bound;
mod groups;
mod rules;
mod single_changes;
mod thread;
mod whole;

pub use difference::{Move, difference};
pub use error::ExplainError;
pub use explanation::{
    Alternative, BindingConstraint, CoreSharing, Explanation, Group, PairCounts, SpeedClass, Volume,
};
pub use rules::Rule;
pub use thread::{AlternativeCpu, ThreadExplanation, explain_thread};
pub use whole::explain;
