//! Determines the bottleneck of a configuration, from windows with more load than it sustains.

use crate::calibration::Costs;
use crate::cpus::Cpus;
use crate::prediction::Limit;
use crate::server::Window;

/// Utilization above which a resource is saturated: the rest are gaps between requests.
const USED_UP: f64 = 0.85;

/// Slowdown of rows with all workers busy above which they are memory bound.
const SLOWER: f64 = 1.25;

pub(crate) fn limit_of(windows: &[Window], costs: &Costs, cpus: &Cpus) -> Limit {
    let mean = |value: fn(&Window) -> f64| {
        windows.iter().map(value).sum::<f64>() / windows.len().max(1) as f64
    };
    let is_used_up = |share: f64| share >= USED_UP;
    if is_used_up(mean(|w| w.front_busy)) {
        Limit::FrontEnd
    } else if is_used_up(mean(|w| w.workers_busy))
        && mean(|w| w.cpus + w.generator_cpus) < USED_UP * cpus.capacity()
    {
        match costs.slowdown() >= SLOWER {
            true => Limit::MemoryBandwidth,
            false => Limit::Workers,
        }
    } else if is_used_up(mean(|w| w.cpus + w.generator_cpus) / cpus.capacity())
        || is_used_up(mean(|w| w.workers_busy))
    {
        Limit::Cpus
    } else {
        Limit::Batching
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_saturated_resource_is_the_limit() {
        let costs = Costs {
            by_threads: Vec::new(),
            full: None,
            steps: Vec::new(),
        };
        let cpus = Cpus::of_tests(4, 1);
        let window = |front_busy, workers_busy, cpus| Window {
            front_busy,
            workers_busy,
            cpus,
            ..Window::default()
        };
        let limit = |window| limit_of(&[window], &costs, &cpus);
        assert_eq!(limit(window(0.95, 0.3, 1.5)), Limit::FrontEnd);
        assert_eq!(limit(window(0.3, 0.95, 2.0)), Limit::Workers);
        assert_eq!(limit(window(0.3, 0.95, 3.9)), Limit::Cpus);
        assert_eq!(limit(window(0.3, 0.5, 2.0)), Limit::Batching);
    }
}
