//! The simulated central scheduler, the reference of the comparison.

use std::time::Duration;

use albacore_batching::{Nanos, Prefer};
use albacore_simulator::{
    ArrivalProcess, Cluster, DropPolicy, Failures, Model, Policy, Popularity, Routing, Scenario,
    Source,
};

/// Number of simulated requests: differences below 0.1 % are noise.
const REQUESTS: u64 = 200_000;

/// Time to detect that a pod of this machine is down or up.
const NOTICE: Nanos = Nanos(1_000_000);

/// Parameters of the simulation, from the pods of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// For a fast pod: cost of a request in a batch, and fixed cost of a batch; nanoseconds.
    pub request_ns: f64,
    pub batch_ns: f64,
    /// Per pod, the factor by which its batches take longer.
    pub slowness: Vec<f64>,
    pub objective: Duration,
    /// Mean downtime per kill.
    pub down: Duration,
    /// Time from one kill to the next.
    pub every: Duration,
}

impl Reference {
    fn central(&self) -> Cluster {
        let objective = Nanos::from(self.objective);
        let model = Model {
            name: "model".to_owned(),
            cost: albacore_batching::deadlines::Cost::new(self.request_ns, self.batch_ns),
            objective,
        };
        let pod = Scenario {
            workers: 1,
            models: vec![model],
            source: Source::Drawn {
                process: ArrivalProcess::Poisson,
                popularity: Popularity::Equal,
                rate: 1.0,
                requests: REQUESTS,
            },
            seed: 1,
            policy: Policy::Auto(Prefer::default()),
            drop: DropPolicy::Auto,
            delays: albacore_batching::deadlines::Delays::default(),
            early: 0.05,
            eager_from: None,
        };
        Cluster {
            pod,
            slowness: self.slowness.clone(),
            routing: Routing::Central,
            hop: Nanos(0),
            is_forwarding: false,
            failures: Some(Failures {
                every: self.every.into(),
                down: self.down.into(),
                notice: NOTICE,
                is_retried: true,
            }),
            routers: 1,
            report_every: Nanos(100_000_000),
            weigh_every: Nanos(200_000_000),
            blackout: Nanos(200_000_000),
        }
    }

    /// Goodput of the central scheduler at this rate, per second.
    #[must_use]
    pub fn goodput_at(&self, rate: f64) -> f64 {
        let figures = self.central().at_rate(rate).run();
        figures.map_or(0.0, |done| {
            rate * done.in_time as f64 / done.figures.offered.max(1) as f64
        })
    }

    /// Command line that runs this simulation.
    #[must_use]
    pub fn command(&self) -> String {
        let ms = |nanos: f64| nanos / 1e6;
        let slow: Vec<&f64> = self
            .slowness
            .iter()
            .filter(|&&factor| factor != 1.0)
            .collect();
        let factor = slow.first().map_or(1.0, |&&factor| factor);
        format!(
            "albacore simulate -f examples/simulate.yaml --cluster --output text --seeds 1 \
             --set workers=1 --set policy=auto --set drop.target=auto --set early=5% \
             --set requests={REQUESTS} --set 'models=[{{name: model, alpha: {:.3}, beta: {:.3}, \
             slo: {}}}]' --pods {} --slow {}:{factor:.2} --fail {:?} --down {:?} --retry \
             --hop-us 0 --routing central",
            ms(self.request_ns),
            ms(self.batch_ns),
            self.objective.as_millis(),
            self.slowness.len(),
            slow.len(),
            self.every,
            Duration::from_millis(self.down.as_millis() as u64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_central_scheduler_answers_what_its_pods_can() {
        let reference = Reference {
            request_ns: 3e6,
            batch_ns: 1e6,
            slowness: vec![3.0, 1.0, 1.0, 1.0],
            objective: Duration::from_millis(100),
            down: Duration::from_millis(300),
            every: Duration::from_secs(2),
        };
        let half = reference.goodput_at(500.0);
        assert!((490.0..=500.0).contains(&half), "{half}");
        let twice = reference.goodput_at(2200.0);
        assert!((500.0..1200.0).contains(&twice), "{twice}");
        let command = reference.command();
        let tail =
            "--pods 4 --slow 1:3.00 --fail 2s --down 300ms --retry --hop-us 0 --routing central";
        assert!(command.ends_with(tail), "{command}");
    }
}
