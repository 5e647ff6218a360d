//! Explains a mapping: the numbers behind the sentences that the command line prints.
//!
//! **Problem.** "Optimal" does not convince a user who would have placed a thread elsewhere.
//! **Approach.** Everything is counted from the given mapping, however it was made: how volume,
//! mains and the threads of each worker lie and what each of them could reach alone
//! (`group_bound`); what every single exchange of two threads and every single shift of one would
//! cost and which rules it would break (`counted_mapping`); and how far a climb gets if one rule is
//! dropped (`single_changes`). [`explain_thread`] asks the same of one thread and every cpu,
//! [`difference`] compares two mappings. **Proof sketch.** What a group could reach alone is exact,
//! so the sum of the parts is a bound that a reader can follow: where the value meets it, nothing
//! can be better. A gain without a rule is reached by an actual mapping, so it is at least that.
//! **Limits.** The runner-up is the best among single exchanges and shifts, not among all mappings;
//! a climb may stop below the best. A rule that the mapping breaks already counts as kept while it
//! is broken no further; (2) is judged as if ranks were given anew, as the solver does.

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
    Alternative, Binding, CoreSharing, Explanation, Group, PairCounts, Share, SpeedShare,
};
pub use rules::Rule;
pub use thread::{Place, ThreadExplanation, explain_thread};
pub use whole::explain;
