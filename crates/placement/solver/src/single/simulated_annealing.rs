//! Simulated annealing on the threads themselves.
//!
//! **Problem.** Where volumes, mains and full cpus constrain each other, counts per domain do not
//! determine what is feasible, and a local search ends early. **Approach.** A thread is moved into
//! a domain of another thread of its worker (compact) or to a random cpu, by exchange or by a
//! shift; a loss is accepted with a probability that decreases with the temperature (Kirkpatrick,
//! Gelatt and Vecchi 1983). Each violated rule costs a penalty. **Proof sketch.** Only states
//! without violations count, and the best of them is kept. **Limits.** A fixed number of moves with
//! a fixed random seed.

use albacore_values::XorShift64;

use crate::single::local_search::Search;
use crate::single::penalized_moves::Acceptance;
use crate::{Mode, WorkBudget};

/// Anneals `search` for `moves` moves; leaves the best state seen in it.
pub(crate) fn anneal_threads(
    search: &mut Search<'_>,
    goal: i64,
    moves: usize,
    budget: &mut WorkBudget,
) {
    let domains = search.domains;
    let mut random = XorShift64::new(0x2545_f491_4f6c_dd1d);
    let hot = domains.gain.iter().sum::<i64>() as f64 * domains.threads as f64 / 10.0 + 2.0;
    let cold = hot.min(1.5);
    let cooling = (cold / hot).powf(64.0 / moves.max(64) as f64);
    let mut temperature = hot;
    let mut value = search.objective();
    let mut violation = search.violation();
    let mut best = if violation > 0 { i64::MIN } else { value };
    let gains = domains.gain.iter().sum::<i64>();
    let penalty = gains * domains.threads as i64 * 3 / 5 + 1;
    let mut best_cpus = search.places();
    let count = search.threads();
    for turn in 0..moves {
        if turn % 64 == 0 {
            temperature *= cooling;
            if turn % 256 == 0 && budget.spend(60 * 256) {
                break;
            }
        }
        let first = random.below(count);
        let here = search.thread(first);
        let near = random.below(8);
        let to = if near < 6 && domains.mode == Mode::Compact && domains.threads > 1 {
            let own = usize::from(here.worker) * domains.threads;
            let other = search.thread(own + random.below(domains.threads));
            let level = 1 + random.below(search.domains.levels - 1);
            let members = domains.members(level, domains.domain(level, other.cpu.into()));
            members.start + random.below(members.len())
        } else {
            random.below(domains.cpus)
        };
        if to == usize::from(here.cpu) {
            continue;
        }
        let chance = f64::from(random.below(1 << 20) as u32 + 1) / f64::from(1 << 20);
        let floor = (temperature * chance.ln()) as i64;
        let accept = Acceptance { penalty, floor };
        let effect = if random.below(8) == 0 {
            search.try_shift(first, to, accept)
        } else {
            let held = search.on_cpu(to);
            if held.is_empty() {
                search.try_shift(first, to, accept)
            } else {
                let second = held[random.below(held.len())] as usize;
                search.try_exchange(first, second, accept)
            }
        };
        let Some(effect) = effect else {
            continue;
        };
        value += effect.gain;
        violation += effect.violation;
        if violation == 0 && value > best {
            best = value;
            search.copy_places(&mut best_cpus);
            if best >= goal {
                return;
            }
        }
    }
    if value < best || violation > 0 {
        search.restore(&best_cpus);
    }
}
