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
    /// Measure where batching pays off, and compare the gain of deferring with what auto predicts
    ///
    /// Times batches of several models and kinds, then sends the same one-row SHAP requests in turn
    /// to servers with the policies eager and deferred: goodput, idle workers and p50 next to the
    /// predictions of policy auto, and the choice of auto. Takes up to three minutes, and needs a
    /// machine with CPUs for the workers, the server and the generator.
    #[command(verbatim_doc_comment)]
    Deferral(BenchDeferralArgs),
    /// Measure the tree engine: commands on standard input, results on standard output
    ///
    /// `load MODEL DATA.f32 COLS THREADS` prints `ok`; DATA is raw little-endian float32, NaN means
    /// missing. `check KIND N FILE` writes the outputs of the first N rows as raw float32 and
    /// prints `ok`. `run KIND BATCH TARGET_MS MIN_CALLS` prints a line of JSON: nanoseconds per
    /// row. KIND is predict, contribs or interactions. A command that fails prints `error` and the
    /// reason.
    #[command(verbatim_doc_comment)]
    Engine {
        /// Use only this kernel [default: the fastest on this machine]
        #[arg(long, value_name = "NAME")]
        kernel: Option<String>,
    },
    /// Compare the front end with nginx serving a static reply of the same size
    ///
    /// One row of a small model over HTTP (wrk) and gRPC (h2load), the servers in turn on the same
    /// CPUs. Needs nginx, wrk and h2load.
    Front(BenchFrontArgs),
    /// Measure how a flood of requests to one model affects another model with few requests
    ///
    /// Sends single rows at times drawn before the run, next to clients that resend at once.
    Isolation(BenchIsolationArgs),
    /// Measure what a server answers in time when clients send far more than it can handle
    ///
    /// Goodput of each kind of request with many clients that resend at once, and in an open loop
    /// at ten times the peak, next to the peak; and the memory of the server.
    Overload(BenchOverloadArgs),
    /// Measure Envoy and gRPC clients in front of servers, one of them slow and one killed
    ///
    /// Four servers, each within a CPU quota, get an open load by round robin, least request and
    /// weights from load reports, in turn; every 2 s one of them is killed and started again.
    /// Prints the requests answered in time next to the simulated central scheduler, the lost
    /// requests, and how long answers were missing. Requires root, Envoy and the gRPC client:
    /// `make bench-routing` provides both.
    #[command(verbatim_doc_comment)]
    Routing(BenchRoutingArgs),
    /// Run only the batch scheduler on real threads, at rising load; prints a line of JSON per rate
    Scheduler(BenchSchedulerArgs),
    /// Load a server of the Open Inference Protocol v2, ours or any other, and report what it
    /// answers in time
    ///
    /// Open loop: arrivals are drawn before the run, latencies count from the intended times. Late,
    /// shed and failed requests are distinguished. A run in which the generator falls behind its
    /// schedule fails.
    #[command(verbatim_doc_comment)]
    Serve(Box<BenchServeArgs>),
    /// Solve a placement as `albacore plan` does, and by the integer program of the article
    Solver(BenchSolverArgs),
    /// Measure how consistent the choices of albacore tune are, and how close to the best
    ///
    /// Runs albacore tune several times, then measures all of its candidates one by one (20 minutes
    /// on 2 CPUs), and finally the choices and the best of all candidates in turn.
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
