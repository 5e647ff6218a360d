//! All deployments of a machine as one problem.
//!
//! **Problem.** Several servers share a machine: each has its own W, T, mode and cpuset; their
//! mains disturb each other, and a cpu that one of them fills is not free for another. Threads that
//! run already should not be moved without need. **Definition.** With X(d,w,c) threads of worker w
//! of deployment d on cpu c, in this order:
//! 1. Rules (2) and (3) hold for each deployment on its own cpuset.
//! 2. (8): the loads (threads of all deployments plus the weights of obstacles) are balanced over
//!    the cpus that each may use: sorted from the largest, they are lexicographically least. Then
//!    (8+): so are the loads of cores, among the loads of cpus that (8) allows. For one deployment
//!    on equal cores this is floor to ceil. Where cores differ in speed, the levels of `fill_order`
//!    take the place of both. They are always reached, so none is ever relaxed.
//! 3. mains-per-core: no core holds more mains, of all deployments, than the least number that lets
//!    every deployment place its mains. Where all deployments have the same cpus, nothing but them
//!    runs there and together they have no more workers than cpus (cores), (12) and (12+) hold for
//!    them as for one deployment: of W mains at most max(0, W - C + r) cpus hold a main beside
//!    ceil(N/C) threads. With different cpusets there is no one C to count by: then the mains are
//!    kept apart by the objective alone. (12) and (12+) need equally fast cores; where cores differ
//!    in speed, fast-mains comes after mains-per-core: as few mains as can be are on cores slower
//!    than the fastest. These can contradict (8): `relaxed` says how far.
//! 4. The objective: distances of all pairs of mains, plus (scatter) or minus (compact) those of
//!    the pairs within each worker. From it each moved thread takes `move_cost`; what is left is
//!    made as large as can be, then moves as few.
//!
//! So what the rules force is moved at any cost, and everything else only where it gains more than
//! it moves. **Approach.** One deployment that has the machine to itself, on equally fast cores, is
//! [`solve()`](crate::solve()). Else: threads stay on their current cpus as far as the rules let
//! them, new ones go where least runs (`volumes`), are assigned to workers (`assignment`), and
//! moved (`search_state`, `local_search`, `perturbation`); ranks come last (`labeling`). Tiny
//! problems are enumerated (`enumerate`), small ones of which nothing runs yet are solved as an
//! integer program (`reduced`). The bound is computed on its own (`bound`, `min_cost_flow`);
//! `check` judges the answer and shares no code with the solver. [`CachedSolution`] answers a
//! problem that was solved before.

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
