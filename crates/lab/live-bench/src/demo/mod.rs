//! `make demo`: measures serving and placement on this machine.
//!
//! One live server, one open-loop load. Windows alternate between the kernel's placement (`policy:
//! None`) and Albacore's (`policy: Tuna`) by rewriting the deployment's file, as a user would; then
//! workers are killed under load. The results are printed even if they show no gain.

mod charts;
mod load;
mod report;
mod verdict;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::service::{Kill, Service};
use load::Rows;

/// Windows per arm; with [`WINDOW`] the comparison takes less than 50 s.
const WINDOWS: usize = 8;
/// Long enough for a p99 over some hundred requests, short enough that slow drift of the machine
/// affects both arms.
const WINDOW: Duration = Duration::from_secs(3);
/// Load between a switch and the start of its window, so that the caches of moved threads are warm.
const SETTLE: Duration = Duration::from_millis(300);
/// Number of workers killed, one at a time.
const KILLS: usize = 12;
/// Offered load as a share of the measured capacity: busy, not overloaded.
const LOAD_SHARE: f64 = 0.6;
/// Seed of all arrivals; printed, so that a run can be reproduced.
const SEED: u64 = 20_261_121;

/// The placement of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arm {
    /// `policy: None`: the kernel schedules freely.
    Kernel,
    /// `policy: Tuna`: threads are pinned as planned.
    Albacore,
}

impl Arm {
    fn policy(self) -> &'static str {
        match self {
            Self::Kernel => "None",
            Self::Albacore => "Tuna",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Albacore => "albacore",
        }
    }
}

pub(crate) struct Window {
    pub(crate) arm: Arm,
    pub(crate) samples: Vec<albacore_load::Sample>,
}

/// The measurements of the demo.
pub(crate) struct Findings {
    pub(crate) rate: f64,
    pub(crate) rows_per_request: usize,
    pub(crate) slo: Duration,
    pub(crate) windows: Vec<Window>,
    pub(crate) kills: Vec<Kill>,
    pub(crate) during_kills: albacore_load::Report,
    pub(crate) plan_svg: String,
    pub(crate) cpus: usize,
}

/// Runs the demo; `root` is the checkout.
pub fn run(root: &Path) -> Result<()> {
    let out = root.join("demo");
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let begin = Instant::now();
    let deployment = Deployment::new(root, &out)?;
    deployment.write(Arm::Albacore)?;
    println!("Starting `albacore run -f {}`", deployment.file.display());
    let mut service = Service::start(&deployment.file, &["--http", "127.0.0.1:0"])?;
    let address = service.listening()?;
    service.ready(Duration::from_secs(30))?;
    let rows = Rows::read(&root.join("examples/fraud_rows.npy"))?;
    let findings = measure(
        &deployment,
        &mut service,
        rows.requests(address)?,
        rows.per_request(),
    )?;
    let code = service.stop(Duration::from_secs(30))?;
    ensure!(
        code == Some(0),
        "albacore run ended with {code:?} instead of 0"
    );
    verdict::print(&findings);
    let report = out.join("report.html");
    std::fs::write(&report, report::html(&findings))
        .with_context(|| format!("cannot write {}", report.display()))?;
    println!(
        "\nReport: {}  ({:.0} s)",
        report.display(),
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}

fn measure(
    deployment: &Deployment,
    service: &mut Service,
    requests: Vec<albacore_load::Request>,
    rows_per_request: usize,
) -> Result<Findings> {
    let plan_svg = crate::service::albacore_stdout(&[
        "plan",
        "--workers",
        "2",
        "--threads",
        "2",
        "--mode",
        "scatter",
        "--output",
        "svg",
    ])?;
    let rate = LOAD_SHARE * load::capacity(&requests)?;
    ensure!(
        rate > 0.0,
        "the server answered no request during calibration"
    );
    println!("Offering {rate:.0} requests/s of {rows_per_request} rows with SHAP, seed {SEED}");
    let mut windows = Vec::new();
    for index in 0..2 * WINDOWS {
        // ABBA order: a linear drift of the machine favors neither arm.
        let arm = if matches!(index % 4, 0 | 3) {
            Arm::Kernel
        } else {
            Arm::Albacore
        };
        deployment.write(arm)?;
        service.policy(arm.policy(), Duration::from_secs(10))?;
        load::open(&requests, rate, SETTLE, SEED + 1000 + index as u64)?;
        let samples = load::open(&requests, rate, WINDOW, SEED + index as u64 / 2)?;
        let summary = albacore_load::summarize(&samples, WINDOW, load::SLO);
        println!(
            "  window {:>2}/{}  {:<8}  p50 {:>7.2} ms  p99 {:>7.2} ms",
            index + 1,
            2 * WINDOWS,
            arm.label(),
            summary.p50.as_secs_f64() * 1e3,
            summary.p99.as_secs_f64() * 1e3,
        );
        windows.push(Window { arm, samples });
    }
    deployment.write(Arm::Albacore)?;
    service.policy(Arm::Albacore.policy(), Duration::from_secs(10))?;
    let (kills, during_kills) = kill_under_load(service, &requests, rate)?;
    let cpus = std::thread::available_parallelism()?.get();
    let slo = load::SLO;
    Ok(Findings {
        rate,
        rows_per_request,
        slo,
        windows,
        kills,
        during_kills,
        plan_svg,
        cpus,
    })
}

fn kill_under_load(
    service: &mut Service,
    requests: &[albacore_load::Request],
    rate: f64,
) -> Result<(Vec<Kill>, albacore_load::Report)> {
    println!("Killing {KILLS} workers under the same load");
    let pause = Duration::from_millis(500);
    let length = pause * (KILLS as u32 + 2);
    let (background, rate_of_load) = (requests.to_vec(), rate);
    let traffic =
        std::thread::spawn(move || load::open(&background, rate_of_load, length, SEED + 77));
    let mut kills = Vec::new();
    for index in 0..KILLS {
        std::thread::sleep(pause);
        kills.push(service.kill_worker(index as u64 % 2, Duration::from_secs(5))?);
    }
    let samples = traffic
        .join()
        .map_err(|_| anyhow::anyhow!("the load thread panicked"))??;
    let during = albacore_load::Report::of(&samples, length, load::SLO);
    Ok((kills, during))
}

/// The deployment's file, rewritten for each window with the policy of its arm.
struct Deployment {
    file: PathBuf,
    text: String,
}

impl Deployment {
    fn new(root: &Path, out: &Path) -> Result<Self> {
        let source = root.join("examples/fraud.yaml");
        let text = std::fs::read_to_string(&source)
            .with_context(|| format!("cannot read {}", source.display()))?;
        let model = root.join("examples/fraud.ubj");
        let text = text.replace("file://./fraud.ubj", &format!("file://{}", model.display()));
        ensure!(
            text.contains(&*model.to_string_lossy()),
            "examples/fraud.yaml names no fraud.ubj"
        );
        Ok(Self {
            file: out.join("fraud.yaml"),
            text,
        })
    }

    /// Replaces the file atomically.
    fn write(&self, arm: Arm) -> Result<()> {
        let text = format!("{}  placement: {{policy: {}}}\n", self.text, arm.policy());
        let new = self.file.with_extension("new");
        std::fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
        std::fs::rename(&new, &self.file)
            .with_context(|| format!("cannot rename to {}", self.file.display()))
    }
}
