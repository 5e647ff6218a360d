//! Compares policies under the same load, in alternation.

use std::time::{Duration, Instant};

use albacore_bench::{Bench, ModelShape, Probe, Spec, Staircase, median};
use albacore_command::{Failure, print};
use serde_json::Value;

use super::{BenchDeferralArgs, MODEL, ModelFile};
use crate::local_server::LocalServer;

/// Requests with one row for a model.
pub(super) struct Case {
    shape: ModelShape,
    output: &'static str,
    objective: Duration,
}

const WIDE: ModelShape = ModelShape {
    trees: 1000,
    leaves: 100,
    features: 50,
};

pub(super) const CASES: [Case; 2] = [
    Case {
        shape: ModelShape {
            trees: 3000,
            ..WIDE
        },
        output: "contribs",
        objective: Duration::from_millis(25),
    },
    Case {
        shape: WIDE,
        output: "contribs",
        objective: Duration::from_millis(25),
    },
];

/// Moderate loads, as shares of eager goodput.
const LOADS: [f64; 2] = [0.3, 0.6];

/// A load above the capacity of eager batches.
const OVERLOAD: f64 = 1.15;

/// Duration of the load before the choice of `auto` is read: the time constant of its mean rate.
const SETTLING: Duration = Duration::from_secs(6);

/// A server with one policy.
struct Side {
    server: LocalServer,
    workers: u32,
    bench: Bench,
}

/// Result of a run.
struct Served {
    probe: Probe,
    /// Mean number of workers without a batch.
    idle: f64,
}

impl Case {
    pub(super) fn run(&self, args: &BenchDeferralArgs) -> Result<(), Failure> {
        let shape = self.shape;
        print(&format!(
            "\n{} of one row, {} trees of {} leaves, {} features, objective {:?}, {} workers\n",
            self.output, shape.trees, shape.leaves, shape.features, self.objective, args.workers
        ))?;
        let model = ModelFile::create(shape)?;
        let side = |policy: &[&str]| self.side(args, policy, &model);
        let eager = side(&["--policy", "eager"])?;
        let deferred = side(&["--policy", "deferred"])?;
        let alpha = eager.server.model_state(0)?["latency"][0]["alpha_us"].as_f64();
        let carried = f64::from(args.workers) * 1e6 / alpha.unwrap_or(1e3);
        let sides = [("eager", &eager), ("deferred", &deferred)];
        let mut stairs = sides.map(|_| Staircase::new(0.7 * carried));
        for _ in 0..3 * args.rounds {
            for ((_, side), stairs) in sides.iter().zip(&mut stairs) {
                let served = side.serve(stairs.rate, args.length)?;
                stairs.record(side.bench.is_within(&served.probe));
            }
        }
        for ((name, side), stairs) in sides.iter().zip(&stairs) {
            let [low, high] = stairs.spread();
            print(&format!(
                "{name:9} {:6.0} requests/s in time (quartiles {low:.0} to {high:.0}), learned {}\n",
                stairs.threshold(),
                side.learned()?
            ))?;
        }
        let [eager_goodput, deferred_goodput] = stairs.each_ref().map(Staircase::threshold);
        let mut loads = Vec::new();
        for share in LOADS {
            loads.push(self.moderate(args, share, eager_goodput, [&eager, &deferred])?);
        }
        drop((eager, deferred));
        let auto = side(&["--policy", "auto"])?;
        let mut choices = Vec::new();
        for live in &loads {
            let served = auto.serve(live.rate, SETTLING)?;
            choices.push((live, served, auto.choice()?));
        }
        let overloaded = auto.serve(OVERLOAD * eager_goodput, SETTLING)?;
        let chosen = auto.choice()?;
        print("gain of deferring        live  predicted\n")?;
        print_gain(
            "goodput, %",
            deferred_goodput / eager_goodput * 100.0 - 100.0,
            predicted(&chosen, "goodput_gain_ratio") * 100.0,
        )?;
        for (live, _, choice) in &choices {
            live.print(choice)?;
        }
        for (live, served, choice) in &choices {
            print_choice("short_waits", live.rate, served, choice)?;
        }
        print_choice(
            "short_waits",
            OVERLOAD * eager_goodput,
            &overloaded,
            &chosen,
        )?;
        drop(auto);
        let auto = side(&["--policy", "auto", "--prefer", "idle_workers"])?;
        let rate = LOADS[1] * eager_goodput;
        let served = auto.serve(rate, SETTLING)?;
        print_choice("idle_workers", rate, &served, &auto.choice()?)
    }

    /// Starts a server and warms it up, so that it learns its costs.
    fn side(
        &self,
        args: &BenchDeferralArgs,
        policy: &[&str],
        model: &ModelFile,
    ) -> Result<Side, Failure> {
        let mut arguments = vec![
            "--workers".to_owned(),
            args.workers.to_string(),
            "--model".to_owned(),
            model.argument(),
            "--slo".to_owned(),
            format!("{}us", self.objective.as_micros()),
        ];
        arguments.extend(policy.iter().map(|&argument| argument.to_owned()));
        let server = LocalServer::start(args.server.as_deref(), &arguments)?;
        let bench = Bench::new(Spec {
            url: format!("http://{}", server.http),
            models: vec![MODEL.to_owned()],
            rates: Vec::new(),
            is_search: true,
            length: args.length,
            objective: self.objective,
            percentile: args.percentile,
            arrivals: "poisson".to_owned(),
            mix: format!("{}:1", self.output),
            features: None,
            input: None,
            is_binary: true,
            connections: 256,
            seed: 1,
            pids: Vec::new(),
        })?;
        bench.warm()?;
        Ok(Side {
            server,
            workers: args.workers,
            bench,
        })
    }

    /// Alternates both policies at a load that both sustain.
    fn moderate(
        &self,
        args: &BenchDeferralArgs,
        share: f64,
        eager_goodput: f64,
        sides: [&Side; 2],
    ) -> Result<Moderate, Failure> {
        let rate = share * eager_goodput;
        let mut served = [Vec::new(), Vec::new()];
        for _ in 0..args.rounds {
            for (side, served) in sides.iter().zip(&mut served) {
                served.push(side.serve(rate, args.length)?);
            }
        }
        let of = |value: fn(&Served) -> f64| {
            served
                .each_ref()
                .map(|served| median(served.iter().map(value)))
        };
        Ok(Moderate {
            share,
            rate,
            workers: args.workers,
            idle: of(|served| served.idle),
            p50: of(|served| served.probe.report.p50.as_secs_f64() * 1e3),
            bad: of(|served| served.probe.report.bad_rate * 100.0),
        })
    }
}

/// Results of eager and deferred batches at one load.
struct Moderate {
    share: f64,
    rate: f64,
    workers: u32,
    idle: [f64; 2],
    p50: [f64; 2],
    bad: [f64; 2],
}

impl Moderate {
    /// Prints the results with the predictions of `auto` at this load.
    fn print(&self, choice: &Value) -> Result<(), Failure> {
        let gain = |[eager, deferred]: [f64; 2]| deferred - eager;
        let at = |what: &str| format!("{what} at {:.0} %", self.share * 100.0);
        print_gain(
            &at("idle workers"),
            gain(self.idle),
            predicted(choice, "idle_workers_gain"),
        )?;
        print_gain(
            &at("p50, ms"),
            gain(self.p50),
            predicted(choice, "p50_cost_ms"),
        )?;
        let [idle, p50, bad] = [self.idle, self.p50, self.bad];
        print(&format!(
            "    {:.0}/s, eager and deferred: idle workers {:.2} and {:.2} of {}, p50 {:.2} and \
             {:.2} ms, bad {:.1} and {:.1} %\n",
            self.rate, idle[0], idle[1], self.workers, p50[0], p50[1], bad[0], bad[1],
        ))
    }
}

fn predicted(choice: &Value, figure: &str) -> f64 {
    choice[figure].as_f64().unwrap_or(f64::NAN)
}

fn print_gain(what: &str, live: f64, predicted: f64) -> Result<(), Failure> {
    print(&format!("{what:20} {live:+8.2}  {predicted:+9.2}\n"))
}

fn print_choice(prefer: &str, rate: f64, served: &Served, choice: &Value) -> Result<(), Failure> {
    let report = &served.probe.report;
    print(&format!(
        "auto, {prefer}, {rate:.0}/s: {:.0}/s in time, bad {:.1} %, p50 {:.2} ms, idle workers {:.2}\n    {}\n",
        report.goodput,
        report.bad_rate * 100.0,
        report.p50.as_secs_f64() * 1e3,
        served.idle,
        choice["explanation"].as_str().unwrap_or_default(),
    ))
}

impl Side {
    /// Runs a load.
    fn serve(&self, rate: f64, length: Duration) -> Result<Served, Failure> {
        let schedule = self.bench.schedule(rate, length)?;
        let (before, start) = (self.server.work_totals()?, Instant::now());
        let probe = self.bench.probe(&schedule)?;
        let busy = self.server.work_totals()?.since(before).seconds / start.elapsed().as_secs_f64();
        Ok(Served {
            probe,
            idle: f64::from(self.workers) - busy,
        })
    }

    fn learned(&self) -> Result<String, Failure> {
        let cost = &self.server.model_state(0)?["latency"][0];
        let of = |name: &str| cost[name].as_f64().unwrap_or(f64::NAN);
        Ok(format!(
            "alpha {:.0} us, beta {:.0} us",
            of("alpha_us"),
            of("beta_us")
        ))
    }

    /// The choice of `auto` and its reasons.
    fn choice(&self) -> Result<Value, Failure> {
        Ok(self.server.model_state(0)?["batching"][0].clone())
    }
}
