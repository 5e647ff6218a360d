//! `make bench-placement`: a real pre-fork XGBoost server under three placements, in alternating
//! windows.
//!
//! gunicorn runs W workers of T OpenMP threads; 2 W clients send 100-row requests with SHAP, or
//! 500-row requests without, as fast as they are answered. What is compared is the p99 of the
//! handler's own time, as in the article, so that the generator's queueing is not part of it. Every
//! window of a round sees the machine within seconds of the others.

use std::path::Path;
use std::time::{Duration, Instant};

use albacore_load::{Load, Request, Shape, drive, percentile};
use anyhow::{Context, Result, ensure};

use crate::service::Service;

/// Length of one window.
const WINDOW: Duration = Duration::from_secs(4);
/// Rounds of one window per placement.
const ROUNDS: usize = 9;
/// Load before a window counts, after a switch.
const SETTLE: Duration = Duration::from_millis(500);
/// Requests that are explained: the path and the article's small payload, in rows.
const EXPLAIN: (&str, usize) = ("/explain", 100);
/// Requests that are only predicted: short parallel regions, where one displaced thread holds up
/// its team.
const PREDICT: (&str, usize) = ("/predict", 500);

const POLICIES: [&str; 3] = ["None", "RoundRobin", "Tuna"];

/// A model of the benchmark and its number of features.
const MODELS: [(&str, usize); 2] = [("main_small_d6", 29), ("main_medium_d6", 155)];

/// Runs the settings whose line would hold `only` (all, if it is empty); `root` is the checkout.
///
/// # Errors
/// The server does not start, or answers nothing.
pub fn run(root: &Path, only: &str) -> Result<()> {
    let python = python(root)?;
    let folder = root.join("demo");
    std::fs::create_dir_all(&folder)?;
    println!(
        "handler p99 in ms, median of {ROUNDS} windows of {} s; ratios are medians over rounds",
        WINDOW.as_secs()
    );
    println!(
        "{:<16} {:>2} {:>2} {:<11} {:>9} {:>9} {:>9} {:>10} {:>10}",
        "model", "W", "T", "request", "kernel", "robin", "albacore", "vs kernel", "vs robin"
    );
    let explain = MODELS.iter().flat_map(|&model| {
        let sizes = [(2, 2), (2, 4), (4, 2), (4, 4)];
        sizes.map(|(workers, threads)| (model, workers, threads, EXPLAIN))
    });
    let predict = MODELS.iter().map(|&model| (model, 4, 4, PREDICT));
    for ((model, features), workers, threads, (path, rows)) in explain.chain(predict) {
        let setting = Setting {
            model,
            features,
            workers,
            threads,
            path,
            rows,
        };
        if !setting.name().contains(only) {
            continue;
        }
        setting.measure(root, &folder, &python)?;
    }
    Ok(())
}

fn python(root: &Path) -> Result<std::path::PathBuf> {
    let output = std::process::Command::new(root.join("tests/python-env.sh")).output()?;
    ensure!(
        output.status.success(),
        "tests/python-env.sh: {}",
        output.status
    );
    Ok(Path::new(String::from_utf8(output.stdout)?.trim()).join("bin/python3"))
}

struct Setting {
    model: &'static str,
    features: usize,
    workers: usize,
    threads: usize,
    path: &'static str,
    rows: usize,
}

impl Setting {
    /// Model, W, T and request, as printed.
    fn name(&self) -> String {
        let Self {
            model,
            workers,
            threads,
            rows,
            path,
            ..
        } = self;
        let request = format!("{rows} {}", &path[1..]);
        format!("{model:<16} {workers:>2} {threads:>2} {request:<11}")
    }

    fn measure(&self, root: &Path, folder: &Path, python: &Path) -> Result<()> {
        let file = folder.join("gunicorn.yaml");
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        self.write(&file, root, python, port, POLICIES[0])?;
        let mut service = Service::start(&file, &[])?;
        service.placed(Duration::from_secs(60))?;
        let requests = vec![self.request(port)?];
        self.offer(&requests, Duration::from_secs(1))?;
        let mut p99: [Vec<f64>; 3] = Default::default();
        for round in 0..ROUNDS {
            for turn in 0..POLICIES.len() {
                let arm = (turn + round) % POLICIES.len();
                self.write(&file, root, python, port, POLICIES[arm])?;
                service.policy(POLICIES[arm], Duration::from_secs(10))?;
                self.offer(&requests, SETTLE)?;
                p99[arm].push(self.offer(&requests, WINDOW)?);
            }
        }
        service.stop(Duration::from_secs(40))?;
        let ratio = |arm: usize| {
            median(
                p99[arm]
                    .iter()
                    .zip(&p99[2])
                    .map(|(other, albacore)| other / albacore)
                    .collect(),
            )
        };
        println!(
            "{} {:>9.2} {:>9.2} {:>9.2} {:>9.2}x {:>9.2}x",
            self.name(),
            median(p99[0].clone()),
            median(p99[1].clone()),
            median(p99[2].clone()),
            ratio(0),
            ratio(1),
        );
        Ok(())
    }

    /// p99 of the handler's time in milliseconds.
    fn offer(&self, requests: &[Request], length: Duration) -> Result<f64> {
        let shape = Shape::Closed(length);
        let load = Load {
            requests: requests.to_vec(),
            shape,
            connections: 2 * self.workers,
        };
        let mut times: Vec<Duration> = drive(load)?
            .iter()
            .filter(|s| s.status == 200)
            .filter_map(|s| s.stages.time("run"))
            .collect();
        ensure!(
            !times.is_empty(),
            "the server answered nothing in {length:?}"
        );
        times.sort_unstable();
        Ok(percentile(&times, 0.99).as_secs_f64() * 1e3)
    }

    fn request(&self, port: u16) -> Result<Request> {
        let address = format!("127.0.0.1:{port}").parse()?;
        let values =
            (0..self.rows * self.features).map(|i| ((i * 37 % 1000) as f32 - 500.0) / 250.0);
        let body: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(
                Instant::now() < deadline,
                "gunicorn does not listen on port {port}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Request {
            address,
            path: self.path.into(),
            headers: Vec::new(),
            body: body.into(),
        })
    }

    fn write(
        &self,
        file: &Path,
        root: &Path,
        python: &Path,
        port: u16,
        policy: &str,
    ) -> Result<()> {
        let Self {
            model,
            workers,
            threads,
            ..
        } = self;
        let text = format!(
            "apiVersion: albacore.dev/v1alpha1\nkind: InferenceDeployment\nmetadata: {{name: gunicorn}}\n\
             spec:\n  workers: {workers}\n  threads: {threads}\n  mode: Scatter\n  placement: {{policy: {policy}}}\n\
             \x20 template:\n    spec:\n      containers:\n      - name: server\n        command: [{}, -m, gunicorn]\n\
             \x20       args: [--chdir, {}, --workers, \"{workers}\", --bind, \"127.0.0.1:{port}\", --log-level, warning, \"gunicorn_app:app\"]\n\
             \x20       env:\n        - {{name: MODEL, value: {}}}\n",
            python.display(),
            root.join("examples").display(),
            root.join("tests/data/models")
                .join(format!("{model}.ubj"))
                .display(),
        );
        let new = file.with_extension("new");
        std::fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
        Ok(std::fs::rename(&new, file)?)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
