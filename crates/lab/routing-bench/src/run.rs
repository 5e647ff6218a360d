//! Measures all arms in turn in one run, in front of the same pods.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_bench::cpu_time;
use albacore_load::{
    Generator, InferRequest, Load, Outcome as Answer, Request, Sample, Shape, WireFormat, poisson,
};
use albacore_statistics::metric_sum;

use crate::arms::{Arm, Policy, Router};
use crate::envoy::Envoy;
use crate::error::RoutingError;
use crate::figures::{Figures, Round};
use crate::grpc_client::{ClientLoad, GrpcClient, LoadReports};
use crate::kills::{Kill, Kills, while_killing};
use crate::pod::{Pod, PodOptions};
use crate::reference::Reference;

/// Warm-up in addition to the blackout of the weights.
const WARM: Duration = Duration::from_secs(2);

/// Duration of the capacity measurement of each pod, after a warm-up of half of it.
const CAPACITY: Duration = Duration::from_secs(3);

/// Connections of that closed loop: a pod always has a next batch, and no request is refused.
const CAPACITY_CLIENTS: usize = 3;

/// Connections to Envoy: more than the requests in flight.
const CONNECTIONS: usize = 256;

/// Lag of the generator, as a share of the objective, above which the measurement is distorted.
const LAG_SHARE: f64 = 0.05;

#[derive(Clone, Debug)]
pub struct Programs {
    pub server: PathBuf,
    pub envoy: PathBuf,
    /// Path of the program of `tests/routing/client`.
    pub grpc_client: PathBuf,
}

/// Requests, and the pods that serve them.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Name and file of the model.
    pub model: (String, PathBuf),
    pub output: Option<String>,
    pub features: usize,
    /// Values of the distinct requests, sent round-robin, each with the same number of rows.
    pub requests: Vec<Vec<f32>>,
    pub objective: Duration,
    /// CPU quota of each pod, as a share of one cpu. The fast pods are last.
    pub shares: Vec<f64>,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub programs: Programs,
    pub setting: Setting,
    pub arms: Vec<Arm>,
    /// Percent of the remaining capacity.
    pub loads: Vec<u32>,
    pub rounds: u32,
    /// Duration of each round of an arm at a load.
    pub length: Duration,
    /// Time from one kill to the next.
    pub kill_every: Duration,
    pub seed: u64,
    /// Folder for the files of the run.
    pub folder: PathBuf,
}

/// An arm at a load.
#[derive(Clone, Debug)]
pub struct Row {
    pub arm: Arm,
    /// Percent of the remaining capacity.
    pub load: u32,
    /// Intended requests per second.
    pub rate: f64,
    pub figures: Figures,
    /// Goodput of the simulated central scheduler at that rate.
    pub central: f64,
    pub is_generator_late: bool,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    /// Capacity of each pod alone: good answers per second to a few clients in a closed loop.
    pub capacities: Vec<f64>,
    /// Their sum, reduced by the downtime of kills: a pod is down for the measured time of a
    /// restart.
    pub remaining: f64,
    pub reference: Reference,
    pub rows: Vec<Row>,
}

impl Setting {
    fn requests(&self, wire: WireFormat, address: SocketAddr) -> Vec<Request> {
        let request = |values: &Vec<f32>| {
            let call = InferRequest {
                model: &self.model.0,
                input: "input",
                output: self.output.as_deref(),
                values,
                features: self.features,
            };
            call.request(wire, address)
        };
        self.requests.iter().map(request).collect()
    }

    fn rows(&self) -> f64 {
        let values = self.requests.first().map_or(0, Vec::len);
        (values / self.features.max(1)) as f64
    }
}

/// Runs the measurement; calls `progress` with the name of each step.
///
/// # Errors
/// A program does not start or fails.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Outcome, RoutingError> {
    let setting = &options.setting;
    progress("capacities");
    let mut pods = Vec::new();
    for (index, &share) in setting.shares.iter().enumerate() {
        let name = format!("albacore-routing-{}-{index}", std::process::id());
        let pod = PodOptions {
            server: options.programs.server.clone(),
            model: setting.model.clone(),
            objective: Some(setting.objective),
            address: Ipv4Addr::LOCALHOST.into(),
            queue_rows: None,
            share: Some(share),
        };
        pods.push(Pod::start(&name, pod)?);
    }
    let mut down = Vec::new();
    for pod in &mut pods {
        down.push(pod.restart()?.1);
    }
    let capacities = pods.iter().map(|pod| capacity(setting, pod));
    let capacities = capacities.collect::<Result<Vec<_>, _>>()?;
    let reference = reference(options, &pods, &capacities, &down)?;
    let away = |down: &Duration| {
        down.as_secs_f64() / (options.kill_every.as_secs_f64() * pods.len() as f64)
    };
    let left = capacities.iter().zip(&down);
    let remaining = left
        .map(|(capacity, down)| capacity * (1.0 - away(down)))
        .sum();
    let rows = measure(options, &mut pods, remaining, &reference, progress)?;
    Ok(Outcome {
        capacities,
        remaining,
        reference,
        rows,
    })
}

/// Good answers per second.
fn capacity(setting: &Setting, pod: &Pod) -> Result<f64, RoutingError> {
    let mut generator = Generator::new()?;
    let mut closed = |length| {
        generator.run(Load {
            requests: setting.requests(WireFormat::Binary, pod.http),
            shape: Shape::Closed(length),
            connections: CAPACITY_CLIENTS,
        })
    };
    closed(CAPACITY / 2)?;
    let samples = closed(CAPACITY)?;
    let is_good = |sample: &&Sample| Answer::of(sample, setting.objective) == Answer::Good;
    Ok(samples.iter().filter(is_good).count() as f64 / CAPACITY.as_secs_f64())
}

fn reference(
    options: &Options,
    pods: &[Pod],
    capacities: &[f64],
    down: &[Duration],
) -> Result<Reference, RoutingError> {
    let setting = &options.setting;
    let (Some(fast), Some(&best)) = (pods.last(), capacities.last()) else {
        return Err(RoutingError::Failed("there are no pods".to_owned()));
    };
    let metrics = fast.fetch("/metrics")?;
    let learned = |name: &str| {
        let labels = [("model", setting.model.0.as_str()), ("kind", kind(setting))];
        metric_sum(&metrics, name, &labels).ok_or_else(|| {
            let what = format!("{}: the server reports no {name}", fast.http);
            RoutingError::Failed(what)
        })
    };
    // A pod with the same quota as the last one is considered equally fast.
    let shares = &setting.shares;
    let of_share = |(&share, capacity): (&f64, &f64)| match shares.last() == Some(&share) {
        true => 1.0,
        false => best / capacity.max(1e-9),
    };
    Ok(Reference {
        request_ns: learned("albacore_batch_alpha_seconds")? * 1e9 * setting.rows(),
        batch_ns: learned("albacore_batch_beta_seconds")? * 1e9,
        slowness: shares.iter().zip(capacities).map(of_share).collect(),
        objective: setting.objective,
        down: down.iter().sum::<Duration>() / u32::try_from(down.len()).unwrap_or(1).max(1),
        every: options.kill_every,
    })
}

/// Kind under which the server reports the cost of such batches.
fn kind(setting: &Setting) -> &str {
    match setting.output.as_deref() {
        Some(output @ ("contribs" | "interactions")) => output,
        _ => "value",
    }
}

fn measure(
    options: &Options,
    pods: &mut [Pod],
    remaining: f64,
    reference: &Reference,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, RoutingError> {
    let mut cases = Vec::new();
    for &load in &options.loads {
        cases.extend(options.arms.iter().map(|&arm| (load, arm)));
    }
    let mut rounds: Vec<Vec<Round>> = Vec::new();
    rounds.resize_with(cases.len(), Vec::new);
    for round in 0..options.rounds {
        for (&(load, arm), done) in cases.iter().zip(&mut rounds) {
            let (number, of) = (round + 1, options.rounds);
            progress(&format!(
                "round {number} of {of}: {} at {load} %",
                arm.name()
            ));
            let rate = remaining * f64::from(load) / 100.0;
            let has_objective = arm.policy != Policy::Unlimited;
            let objective = has_objective.then_some(options.setting.objective);
            for pod in &mut *pods {
                pod.set_objective(objective)?;
            }
            done.push(one_round(options, pods, arm, rate, round)?);
        }
    }
    let row = |(&(load, arm), rounds): (&(u32, Arm), &Vec<Round>)| {
        let rate = remaining * f64::from(load) / 100.0;
        let objective = options.setting.objective;
        let figures = Figures::of(rounds, objective);
        Row {
            arm,
            load,
            rate,
            is_generator_late: figures.report.lag_p99 > objective.mul_f64(LAG_SHARE),
            central: reference.goodput_at(rate),
            figures,
        }
    };
    Ok(cases.iter().zip(&rounds).map(row).collect())
}

/// Every arm gets the same request times and the same kills.
fn one_round(
    options: &Options,
    pods: &mut [Pod],
    arm: Arm,
    rate: f64,
    round: u32,
) -> Result<Round, RoutingError> {
    let warm = WARM + arm.blackout();
    let seed = options.seed + u64::from(round);
    // With the arm's own blackout the measured times would differ between arms.
    let mut times = poisson(rate, warm, !seed);
    let measured = poisson(rate, options.length, seed);
    times.extend(measured.iter().map(|&time| warm + time));
    let kills = Kills {
        first: warm + options.kill_every / 2,
        every: options.kill_every,
        seed,
    };
    let sent = match arm.router {
        Router::Envoy => through_envoy(options, pods, arm.policy, &times, kills)?,
        Router::GrpcGo => by_grpc(options, pods, arm.policy, &times, kills)?,
    };
    let start = sent
        .samples
        .partition_point(|sample| sample.intended < warm);
    let length = options.length;
    Ok(Round {
        samples: sent.samples[start..].to_vec(),
        kills: sent.kills,
        router_cpu: sent.cpu.mul_f64(length.div_duration_f64(warm + length)),
        retried: sent.retried,
        length,
    })
}

struct Sent {
    samples: Vec<Sample>,
    kills: Vec<Kill>,
    cpu: Duration,
    retried: u64,
}

fn through_envoy(
    options: &Options,
    pods: &mut [Pod],
    policy: Policy,
    times: &[Duration],
    kills: Kills,
) -> Result<Sent, RoutingError> {
    let servers: Vec<SocketAddr> = pods.iter().map(|pod| pod.http).collect();
    let (program, folder) = (&options.programs.envoy, &options.folder);
    let envoy = Envoy::start(program, folder, &servers, Some(policy))?;
    let before = cpu_time(&[envoy.pid()])?;
    let mut generator = Generator::new()?;
    let load = Load {
        requests: options.setting.requests(WireFormat::Binary, envoy.http),
        shape: Shape::Open(times.to_vec()),
        connections: CONNECTIONS,
    };
    let (samples, kills) = while_killing(pods, kills, || Ok(generator.run(load)?))?;
    Ok(Sent {
        samples,
        kills,
        cpu: cpu_time(&[envoy.pid()])?.saturating_sub(before),
        retried: envoy.retried()?,
    })
}

fn by_grpc(
    options: &Options,
    pods: &mut [Pod],
    policy: Policy,
    times: &[Duration],
    kills: Kills,
) -> Result<Sent, RoutingError> {
    let servers: Vec<SocketAddr> = pods.iter().map(|pod| pod.grpc).collect();
    let reports = match policy {
        Policy::Weighted(weights) if !weights.is_out_of_band => LoadReports::Requested,
        _ => LoadReports::NotRequested,
    };
    let folder: &Path = &options.folder;
    let requests = options.setting.requests(WireFormat::Grpc, servers[0]);
    let program = &options.programs.grpc_client;
    let sending = ClientLoad {
        requests: &requests,
        times,
        reports,
    };
    let client = GrpcClient::start(program, folder, &servers, Some(policy), &sending)?;
    let (answered, kills) = while_killing(pods, kills, || client.finish())?;
    Ok(Sent {
        samples: answered.samples,
        kills,
        cpu: answered.cpu,
        retried: 0,
    })
}
