//! Placement of all deployments of a machine as one problem.
//!
//! **Problem.** Several servers share a machine: each has its own W, T, mode and cpuset; their
//! mains disturb each other, and a cpu that one of them fills is not available to another. Running
//! threads should not be moved without need. **Definition.** With X(d,w,c) threads of worker w of
//! deployment d on cpu c, in order of priority:
//! 1. Rules (2) and (3) hold for each deployment on its own cpuset.
//! 2. (8): the loads (threads of all deployments plus the weights of obstacles) are balanced over
//!    the cpus that each may use: sorted in descending order, they are lexicographically least.
//!    Then (8+): likewise the loads of cores, among the loads of cpus that (8) allows. For one
//!    deployment on equal cores this is floor to ceil. Where cores differ in speed, the fill levels
//!    of `fill_order` replace both. These rules are always feasible, so none is ever relaxed.
//! 3. mains-per-core: no core holds more mains, of all deployments, than the smallest limit with
//!    which every deployment can place its mains. If all deployments have the same cpus, nothing
//!    else runs there and together they have no more workers than cpus (cores), (12) and (12+) hold
//!    for them as for one deployment: of W mains at most max(0, W - C + r) cpus hold a main beside
//!    ceil(N/C) threads. With different cpusets there is no common C, so only the objective keeps
//!    the mains apart. (12) and (12+) need equally fast cores; where cores differ in speed,
//!    fast-mains follows mains-per-core: as few mains as possible are on cores slower than the
//!    fastest. These rules can conflict with (8): `relaxed` states by how much.
//! 4. The objective: distances of all pairs of mains, plus (scatter) or minus (compact) those of
//!    the pairs within each worker, minus `move_cost` for each moved thread. It is maximized; ties
//!    are broken in favor of fewer moves.
//!
//! So moves that the rules force are made at any cost, all others only if they gain more than they
//! cost. **Approach.** One deployment that is alone on the machine, on equally fast cores, is
//! solved by [`solve()`](crate::solve()). Otherwise running threads stay on their current cpus as
//! far as the rules allow, new ones go to the least loaded cpus (`volumes`), are assigned to
//! workers (`assignment`), and moved by local search (`search_state`, `local_search`,
//! `perturbation`); ranks are assigned last (`labeling`). Tiny problems are enumerated
//! (`enumerate`), small ones without running threads are solved as an integer program (`reduced`).
//! The bound is computed separately (`bound`, `min_cost_flow`); `check` verifies the answer and
//! shares no code with the solver. [`CachedSolution`] answers a problem that was solved before.

mod alone;
mod assignment;
mod bound;
mod cached_solution;
mod enumerate;
mod error;
mod fill_order;
mod fresh_start;
mod instance;
mod labeling;
mod load_ranges;
mod local_search;
mod min_cost_flow;
mod move_bound;
mod perturbation;
mod reduced;
mod repair;
mod rules;
mod search_state;
mod solve;
mod speed_bound;
mod spread;
mod volumes;

pub use cached_solution::CachedSolution;
pub use error::JointError;
pub use solve::solve_joint;
pub(crate) use solve::solve_one;
