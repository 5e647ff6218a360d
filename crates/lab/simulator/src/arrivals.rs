//! Arrivals of requests: one stream per model, merged in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use albacore_random::Xoshiro256;

use crate::clients::Clients;

/// Distribution of a model's interarrival times; their mean follows from its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrivalProcess {
    /// Exponential: independent arrivals.
    Poisson,
    /// Gamma with this shape: below 1 is bursty, 1 is Poisson, above 1 is more regular.
    Gamma {
        /// Above 0.
        shape: f64,
    },
    /// Constant interarrival times.
    Uniform,
}

/// Distribution of the rate over the models.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    Equal,
    /// The model of rank i gets a share proportional to 1 / i^exponent.
    Zipf {
        /// At least 0.
        exponent: f64,
    },
}

impl Popularity {
    /// The share of each of `models` models; they sum to 1.
    #[must_use]
    pub fn shares(&self, models: usize) -> Vec<f64> {
        let weight = |i: usize| match self {
            Self::Equal => 1.0,
            Self::Zipf { exponent } => (i as f64 + 1.0).powf(-exponent),
        };
        let sum: f64 = (0..models).map(weight).sum();
        (0..models).map(|i| weight(i) / sum).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// Nanoseconds since the start.
    pub at: u64,
    /// Index of the model.
    pub model: usize,
}

/// All arrivals in order of time; endless, except if they are listed or while all clients wait.
#[derive(Debug)]
pub(crate) enum Arrivals<'a> {
    Drawn {
        streams: Vec<Stream>,
        /// Next arrival of each model with a nonzero rate.
        next: BinaryHeap<Reverse<Arrival>>,
        process: ArrivalProcess,
    },
    Listed(std::slice::Iter<'a, Arrival>),
    ClosedLoop(Clients),
}

#[derive(Debug)]
pub(crate) struct Stream {
    random: Xoshiro256,
    /// Mean interarrival time, nanoseconds.
    gap: f64,
    /// Time of the last arrival; a float, to keep fractions of nanoseconds.
    last: f64,
}

impl Stream {
    fn next(&mut self, process: ArrivalProcess) -> u64 {
        let gap = match process {
            ArrivalProcess::Poisson => self.random.exponential(),
            ArrivalProcess::Gamma { shape } => self.random.gamma(shape),
            ArrivalProcess::Uniform => 1.0,
        };
        self.last += gap * self.gap;
        // Above 2^53 ns, after 100 days, a float cannot represent every integer: no run is that
        // long.
        self.last as u64
    }
}

impl<'a> Arrivals<'a> {
    /// Draws arrivals; `rates` are the models' requests per second.
    pub(crate) fn draw(process: ArrivalProcess, rates: &[f64], seed: u64) -> Self {
        let mut streams: Vec<Stream> = rates
            .iter()
            .enumerate()
            .map(|(model, &rate)| {
                let gap = 1e9 / rate;
                // Uniform streams are staggered; the first one starts at 0.
                let last = match process {
                    ArrivalProcess::Uniform => gap * (model as f64 / rates.len() as f64 - 1.0),
                    ArrivalProcess::Poisson | ArrivalProcess::Gamma { .. } => 0.0,
                };
                let random = Xoshiro256::new(seed, model as u64 + 1);
                Stream { random, gap, last }
            })
            .collect();
        let mut next = BinaryHeap::with_capacity(streams.len());
        for (model, stream) in streams.iter_mut().enumerate() {
            if stream.gap.is_finite() {
                let at = stream.next(process);
                next.push(Reverse(Arrival { at, model }));
            }
        }
        Self::Drawn {
            streams,
            next,
            process,
        }
    }

    pub(crate) fn listed(list: &'a [Arrival]) -> Self {
        Self::Listed(list.iter())
    }

    pub(crate) fn next(&mut self) -> Option<Arrival> {
        match self {
            Self::Listed(list) => list.next().copied(),
            Self::ClosedLoop(clients) => clients.next(),
            Self::Drawn {
                streams,
                next,
                process,
            } => {
                let mut first = next.peek_mut()?;
                let arrival = first.0;
                first.0.at = streams[arrival.model].next(*process);
                Some(arrival)
            }
        }
    }

    /// Sets new rates. Interarrival times in progress are scaled.
    pub(crate) fn set_rates(&mut self, rates: &[f64], now: u64) {
        if let Self::Drawn { streams, next, .. } = self {
            let left = next.drain().collect::<Vec<_>>();
            for Reverse(Arrival { at, model }) in left {
                let stream = &mut streams[model];
                let gap = 1e9 / rates[model];
                let rest = (at.saturating_sub(now)) as f64 / stream.gap * gap;
                stream.gap = gap;
                stream.last = now as f64 + rest;
                next.push(Reverse(Arrival {
                    at: stream.last as u64,
                    model,
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_ordered_and_have_their_rates() {
        for process in [
            ArrivalProcess::Poisson,
            ArrivalProcess::Gamma { shape: 0.5 },
            ArrivalProcess::Uniform,
        ] {
            let mut arrivals = Arrivals::draw(process, &[100.0, 300.0, 0.0], 1);
            let (mut last, mut counts) = (0, [0; 3]);
            for _ in 0..100_000 {
                let arrival = arrivals.next().unwrap();
                assert!(arrival.at >= last);
                last = arrival.at;
                counts[arrival.model] += 1;
            }
            assert!(
                (last as f64 / 250e9 - 1.0).abs() < 0.02,
                "{process:?} {last}"
            );
            assert!(
                (f64::from(counts[1]) / 75e3 - 1.0).abs() < 0.02,
                "{counts:?}"
            );
            assert_eq!(counts[2], 0);
        }
    }

    #[test]
    fn uniform_arrivals_start_at_zero() {
        let mut arrivals = Arrivals::draw(ArrivalProcess::Uniform, &[1.0 / 0.75], 1);
        let first: Vec<u64> = (0..3)
            .filter_map(|_| arrivals.next())
            .map(|a| a.at)
            .collect();
        assert_eq!(first, [0, 750_000_000, 1_500_000_000]);
    }

    #[test]
    fn rates_can_change_during_a_run() {
        let mut arrivals = Arrivals::draw(ArrivalProcess::Poisson, &[1000.0], 1);
        arrivals.set_rates(&[4000.0], 0);
        let last = (0..40_000).filter_map(|_| arrivals.next()).last().unwrap();
        assert!((last.at as f64 / 10e9 - 1.0).abs() < 0.03, "{last:?}");
    }

    #[test]
    fn popular_models_get_more_requests() {
        assert_eq!(Popularity::Equal.shares(4), [0.25; 4]);
        let shares = Popularity::Zipf { exponent: 1.0 }.shares(3);
        assert!((shares[0] / shares[2] - 3.0).abs() < 1e-12);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
