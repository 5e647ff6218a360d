//! The subcommands of `albacore bench`.

use albacore_command::Failure;
use clap::Subcommand;

use crate::bench_deferral::{self, BenchDeferralArgs};
use crate::bench_engine;
use crate::bench_front::{self, BenchFrontArgs};
use crate::bench_isolation::{self, BenchIsolationArgs};
use crate::bench_overload::{self, BenchOverloadArgs};
use crate::bench_routing::{self, BenchRoutingArgs};
use crate::bench_scheduler::{self, BenchSchedulerArgs};
use crate::bench_serve::{self, BenchServeArgs};
use crate::bench_solver::{self, BenchSolverArgs};
use crate::bench_tune::{self, BenchTuneArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure where batching pays, and what deferring gains there beside what auto predicts
    ///
    /// Times batches of several models and kinds, then gives servers under the policies eager and
    /// deferred the same one-row SHAP requests in turn: goodput, idle workers and p50 beside the
    /// predictions of policy auto, and what auto chooses. Takes up to three minutes, and needs a
    /// machine with cpus for the workers, the server and the generator.
    #[command(verbatim_doc_comment)]
    Deferral(BenchDeferralArgs),
    /// Measure the tree engine: orders on standard input, answers on standard output
    ///
    /// `load MODEL DATA.f32 COLS THREADS` answers `ok`; DATA is raw little-endian float32, NaN is
    /// missing. `check KIND N FILE` writes the outputs of the first N rows as raw float32 and
    /// answers `ok`. `run KIND BATCH TARGET_MS MIN_CALLS` answers a line of JSON: nanoseconds a
    /// row. KIND is predict, contribs or interactions. What cannot be done is answered by `error`
    /// and the reason.
    #[command(verbatim_doc_comment)]
    Engine {
        /// Have one kernel do all [default: what is fastest here]
        #[arg(long, value_name = "NAME")]
        kernel: Option<String>,
    },
    /// Measure the front end beside nginx with a static reply of the same size
    ///
    /// One row of a small model over HTTP (wrk) and gRPC (h2load), the servers in turn on the same
    /// cpus. Needs nginx, wrk and h2load.
    Front(BenchFrontArgs),
    /// Measure what a flood of one model costs another that asks for little
    ///
    /// Single rows at times drawn before the run beside clients that resend at once.
    Isolation(BenchIsolationArgs),
    /// Measure what is answered in time where clients ask for far more than the server can do
    ///
    /// Goodput of each kind of request with many clients that resend at once, and in an open loop
    /// at ten times the peak, beside the peak; and the server's memory.
    Overload(BenchOverloadArgs),
    /// Measure Envoy and gRPC clients in front of servers of which one is slow and one is killed
    ///
    /// Four servers, each within a cpu quota, get an open load by round robin, least request and
    /// weights by load reports, all in turn; every 2 s one of them is killed and started again.
    /// Prints what was answered in time beside the simulated central scheduler, what was lost, and
    /// how long answers were missing. Needs root, Envoy and the gRPC client: `make bench-routing`
    /// brings both.
    #[command(verbatim_doc_comment)]
    Routing(BenchRoutingArgs),
    /// Run the batch scheduler alone on real threads, at rising load: a line of JSON for each rate
    Scheduler(BenchSchedulerArgs),
    /// Load a server of the Open Inference Protocol v2, ours or any other, and tell what it
    /// answers in time
    ///
    /// Open loop: arrivals are drawn before the run, latencies count from the intended times.
    /// Late, shed and failed requests are distinguished. A run in which the generator fell behind
    /// its schedule fails.
    #[command(verbatim_doc_comment)]
    Serve(Box<BenchServeArgs>),
    /// Solve a placement as `albacore plan` does, and by the integer program of the article
    Solver(BenchSolverArgs),
    /// Measure how often albacore tune chooses the same, and how near to the best of all
    ///
    /// Runs albacore tune several times, then measures all of its candidates one by one (20 minutes
    /// on 2 cpus), and at last the choice of most runs beside the best of all, in turn.
    Tune(BenchTuneArgs),
}

impl BenchCommand {
    /// Runs the benchmark and prints the results.
    ///
    /// # Errors
    /// Those of the subcommand.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Deferral(args) => bench_deferral::run(args),
            Self::Engine { kernel } => bench_engine::run(kernel.as_deref()),
            Self::Front(args) => bench_front::run(args),
            Self::Isolation(args) => bench_isolation::run(args),
            Self::Overload(args) => bench_overload::run(args),
            Self::Routing(args) => bench_routing::run(args),
            Self::Scheduler(args) => bench_scheduler::run(args),
            Self::Serve(args) => bench_serve::run(args),
            Self::Solver(args) => bench_solver::run(args),
            Self::Tune(args) => bench_tune::run(args),
        }
    }
}
