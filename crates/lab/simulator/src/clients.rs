//! Closed-loop clients: they wait for a reply, think, and send the next request.
//!
//! All clients are identical, so a reply may wake any of them. A dropped request counts as answered
//! at the time of the drop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use albacore_random::Xoshiro256;

use crate::arrivals::Arrival;

/// Minimum of the mean think time before the first request, so that clients do not all start at
/// once; nanoseconds.
const START: f64 = 1e6;

#[derive(Debug)]
pub(crate) struct Clients {
    random: Xoshiro256,
    /// Cumulative shares of the models.
    parts: Vec<f64>,
    /// Mean think time, nanoseconds.
    think: f64,
    /// Send times of the thinking clients.
    send_times: BinaryHeap<Reverse<u64>>,
}

impl Clients {
    /// `shares` are the models' shares of the requests.
    pub(crate) fn new(count: u32, think: u64, shares: &[f64], seed: u64) -> Self {
        let mut sum = 0.0;
        let part = |share: &f64| {
            sum += share;
            sum
        };
        let mut clients = Self {
            random: Xoshiro256::new(seed, 0),
            parts: shares.iter().map(part).collect(),
            think: think as f64,
            send_times: BinaryHeap::with_capacity(count as usize),
        };
        for _ in 0..count {
            let begin = clients.random.exponential() * clients.think.max(START);
            clients.send_times.push(Reverse(begin as u64));
        }
        clients
    }

    /// Time of the next request; `None` while all clients wait.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.send_times.peek().map(|time| time.0)
    }

    pub(crate) fn next(&mut self) -> Option<Arrival> {
        let Reverse(at) = self.send_times.pop()?;
        let unit = self.random.unit();
        let model = self.parts.partition_point(|&part| part < unit);
        let model = model.min(self.parts.len().saturating_sub(1));
        Some(Arrival { at, model })
    }

    /// Handles the reply to a request.
    pub(crate) fn answer(&mut self, at: u64) {
        let thought = match self.think > 0.0 {
            true => self.random.exponential() * self.think,
            false => 0.0,
        };
        self.send_times
            .push(Reverse(at.saturating_add(thought as u64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_sends_before_its_previous_answer() {
        let mut clients = Clients::new(3, 0, &[0.25, 0.75], 1);
        let mut second = 0;
        for round in 1..1000 {
            for _ in 0..3 {
                second += clients.next().unwrap().model;
            }
            assert_eq!((clients.next_at(), clients.next()), (None, None));
            (0..3).for_each(|n| clients.answer(round * 1_000_000 + n));
            assert_eq!(clients.next_at(), Some(round * 1_000_000));
        }
        assert!((2000..2500).contains(&second), "{second}");
    }

    #[test]
    fn the_mean_think_time_is_the_configured_one() {
        let mut clients = Clients::new(1, 5_000_000, &[1.0], 1);
        let mut now = 0;
        for _ in 0..10_000 {
            now = clients.next().unwrap().at;
            clients.answer(now);
        }
        assert!((now as f64 / 50e9 - 1.0).abs() < 0.05, "{now}");
    }
}
