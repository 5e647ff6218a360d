//! One window: load on a server, and the resource usage of server and machine.

use std::collections::BTreeMap;
use std::time::Duration;

use albacore_load::{
    InferRequest, Load, LoadError, Request, Sample, Shape, StageTimes, WireFormat, drive,
    percentile, poisson,
};
use albacore_random::Xoshiro256;

use crate::grid::WindowId;
use crate::host_load::{HostLoad, disturbance};
use crate::record::{Quantiles, SHARES, Stage, Window};
use crate::server::Running;
use crate::spec::{Model, RequestKind, Spec};

/// Number of distinct requests of a kind, sent round-robin.
const REQUESTS: usize = 4;

/// Connections of an open loop: more than are in flight at sustainable rates.
const OPEN_CONNECTIONS: usize = 256;

/// 99th percentile of the load generator's lag above which a window is disturbed.
const LAG_MAX: Duration = Duration::from_millis(1);

/// Measures one window after an unmeasured load.
///
/// # Errors
/// The load generator fails.
pub(crate) fn measure(
    spec: &Spec,
    id: &WindowId,
    running: &Running,
    repeats: u32,
) -> Result<Option<Window>, LoadError> {
    let model = spec.models.iter().find(|model| model.name == id.cell.model);
    let kind = spec.requests.iter().find(|kind| kind.name() == id.request);
    let (Some(model), Some(kind)) = (model, kind) else {
        return Ok(None);
    };
    let requests = requests(spec, model, kind, running);
    let seed = spec.seed.wrapping_add(u64::from(id.trial));
    let load = |length: Duration| Load {
        requests: requests.clone(),
        shape: match spec.load.rate {
            Some(rate) => Shape::Open(poisson(rate, length, seed)),
            None => Shape::Closed(length),
        },
        connections: connections(spec, id.cell.workers),
    };
    if !spec.settle.0.is_zero() {
        drive(load(spec.settle.0))?;
    }
    let host = HostLoad::start(running.pid());
    let samples = drive(load(spec.window.0))?;
    let (usage, host) = host.end();
    let answered: Vec<&Sample> = samples.iter().filter(|s| s.status == 200).collect();
    let good = |sample: &&&Sample| spec.objective.is_none_or(|o| sample.latency <= o.0);
    let run = |sample: &&Sample| sample.stages.time("run");
    Ok(Some(Window {
        id: id.clone(),
        at: crate::seconds_since_epoch(),
        seconds: spec.window.0.as_secs_f64(),
        sent: samples.len(),
        answered: answered.len(),
        good: answered.iter().filter(good).count(),
        latency: quantiles(answered.iter().map(|sample| sample.latency).collect()),
        server: quantiles(answered.iter().filter_map(run).collect()),
        stages: stages(&answered),
        usage,
        disturbed: disturbance(&host)
            .or_else(|| broken_connections(&samples))
            .or_else(|| late_generator(&samples)),
        host,
        repeats,
    }))
}

/// Error for requests without any response: a process of the server has died.
fn broken_connections(samples: &[Sample]) -> Option<String> {
    let broken = samples.iter().filter(|sample| sample.status == 0).count();
    (broken > 0).then(|| format!("{broken} of {} requests got no answer", samples.len()))
}

/// Disturbance by a generator that was late in an open loop: latencies include its lag.
fn late_generator(samples: &[Sample]) -> Option<String> {
    let mut lags: Vec<Duration> = samples.iter().map(|sample| sample.lag).collect();
    lags.sort_unstable();
    let lag = percentile(&lags, 0.99);
    let ms = lag.as_secs_f64() * 1e3;
    (lag > LAG_MAX).then(|| format!("the load generator was {ms:.1} ms late"))
}

fn connections(spec: &Spec, workers: u16) -> usize {
    match (spec.load.clients_per_worker, spec.load.clients) {
        (Some(each), _) => usize::from(each) * usize::from(workers),
        (None, Some(all)) => usize::from(all),
        (None, None) => OPEN_CONNECTIONS,
    }
}

fn requests(spec: &Spec, model: &Model, kind: &RequestKind, running: &Running) -> Vec<Request> {
    let mut random = Xoshiro256::new(spec.seed, 1);
    let mut values = || -> Vec<f32> {
        let count = kind.rows * model.features;
        (0..count)
            .map(|_| random.unit() as f32 * 4.0 - 2.0)
            .collect()
    };
    let request = |values: &[f32]| match &kind.path {
        Some(path) => Request {
            address: running.address,
            path: path.clone(),
            headers: Vec::new(),
            body: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        },
        None => InferRequest {
            model: &model.name,
            input: "input",
            output: kind.output.as_deref(),
            values,
            features: model.features,
        }
        .request(WireFormat::Binary, running.address),
    };
    (0..REQUESTS).map(|_| request(&values())).collect()
}

fn quantiles(mut times: Vec<Duration>) -> Quantiles {
    if times.is_empty() {
        return Quantiles::default();
    }
    times.sort_unstable();
    let micros = |&share: &f64| percentile(&times, share).as_micros() as u64;
    Quantiles(SHARES.iter().map(micros).collect())
}

fn stages(answered: &[&Sample]) -> BTreeMap<String, Stage> {
    let figures = |name: String| {
        let times = answered.iter().filter_map(|s| s.stages.time(&name));
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        let sum = times.iter().sum::<Duration>().as_secs_f64() * 1e6;
        let stage = Stage {
            mean: sum / times.len().max(1) as f64,
            p99: percentile(&times, 0.99).as_micros() as u64,
        };
        (!times.is_empty()).then_some((name, stage))
    };
    StageTimes::names()
        .into_iter()
        .filter_map(figures)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_server_and_a_late_generator_disturb_and_refusals_do_not() {
        let sample = |status| Sample {
            intended: Duration::ZERO,
            sent: Duration::ZERO,
            latency: Duration::ZERO,
            status,
            stages: StageTimes::default(),
            request: 0,
            lag: Duration::ZERO,
        };
        assert_eq!(broken_connections(&[sample(200), sample(429)]), None);
        let late = Sample {
            lag: 2 * LAG_MAX,
            ..sample(200)
        };
        assert_eq!(late_generator(&[sample(200)]), None);
        assert!(late_generator(&[late]).unwrap().contains("2.0 ms late"));
        let said = broken_connections(&[sample(200), sample(0), sample(0)]).unwrap();
        assert_eq!(said, "2 of 3 requests got no answer");
    }
}
