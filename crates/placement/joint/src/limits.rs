//! Bounds of joint problems, each with its reason.

/// Most deployments of a joint problem. A node runs 110 pods by default, 500 at most.
pub const DEPLOYMENTS_MAX: usize = 1_024;

/// Most threads of all deployments of a joint problem: 200 deployments of 16 x 16 and some.
pub const SLOTS_MAX: u32 = 65_536;

/// Most workers times cpus of a joint problem. The search keeps 8 bytes for each pair: 32 MiB.
pub const CELLS_MAX: usize = 4_194_304;

/// Most that obstacles on one cpu weigh, in threads; keeps sums of loads in a `u32`.
pub const WEIGHT_MAX: u32 = 65_536;

/// Most placements that are enumerated: some milliseconds.
pub(crate) const TINY_MAX: usize = 100_000;

/// Steps of an enumeration between two questions to the budget: some 20 microseconds.
pub(crate) const TINY_STEPS: usize = 512;

/// Most work in all rounds of a joint perturbation, in threads times cpus: some tens of
/// milliseconds, also without a budget.
pub(crate) const PERTURBATION_WORK_MAX: usize = 16_000_000;

/// A cost of moves that no gain exceeds, in cycles: one thread gains at most 65,536 pairs times 200
/// cycles. Its multiple of 65,536 threads and of `CYCLE` still fits an `i64`.
pub(crate) const FROZEN_COST: i64 = 1 << 29;

/// Most work of the bound's flow of mains, in mains times edges: some milliseconds.
pub(crate) const FLOW_WORK_MAX: usize = 400_000;

/// Most circles of mains that the checker turns: an answer that is proven needs none.
pub(crate) const CYCLES_MAX: usize = 400;

/// Most rounds of perturbation and local search: further rounds hardly ever found more (measured on
/// the table of cases).
pub(crate) const PERTURBATIONS_MAX: usize = 400;

/// Tries to find a legal move that is made without gain.
pub(crate) const PERTURBATION_TRIES_MAX: usize = 64;
