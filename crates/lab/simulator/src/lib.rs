//! Simulation of batch scheduling: runs the scheduler of the live server in simulated time, alone,
//! behind a front end, or in many pods.
//!
//! Pure: a function from a scenario to figures; seeds are values, and no external state is read.
#![forbid(unsafe_code)]

mod arrivals;
pub mod chart;
mod clients;
mod cluster;
mod day;
mod drop_rule;
mod goodput;
mod measure;
mod read;
mod run;
mod scenario;
mod scenario_scheduler;
mod server;
mod trace;

pub use arrivals::{Arrival, ArrivalProcess, Popularity};
pub use cluster::{Cluster, ClusterFigures, Failures, Routing};
pub use day::{Day, INTERVAL, Interval, START, WINDOW, days, load_at, steady_by_factor};
pub use drop_rule::{DropRule, Target};
pub use goodput::{BAD_RATE_MAX, RATE_PRECISION, goodput, is_good_at};
pub use measure::Figures;
pub use read::{Invalid, Place, ReadFile, ScenarioError, read_arrivals, read_profiles};
pub use run::{Unwatched, Watcher, run, run_watched};
pub use scenario::{DropPolicy, Model, Policy, Scenario, Source, Wait};
pub use server::{
    BatchCounts, FrontEnd, RequestClass, ServerQueue, ServerReply, ServerRequest, ServerRun,
    ServerScenario, Stalls, simulate_server,
};
pub use trace::trace;
