//! Simulated annealing on the threads themselves: legal moves only, ever colder.
//!
//! **Problem.** Where volumes, mains and full cpus bind each other, counts per domain do not tell
//! what is possible, and climbing ends early. **Approach.** A thread is drawn toward the domain of
//! another thread of its worker (or away from it: scatter), by exchange or by a shift; a loss is
//! accepted the more rarely the later it comes. **Proof sketch.** Every state on the way keeps the
//! rules, and the best is kept. **Limits.** A fixed number of moves from a fixed sequence.

use crate::Mode;
use crate::domains::LEVELS;
use crate::improve::Search;
use crate::shake::Sequence;

/// Wanders for `moves` moves from `search`, which is left at the best state seen.
pub(crate) fn wander(
    search: &mut Search<'_>,
    goal: i64,
    moves: usize,
    out_of_budget: &mut dyn FnMut() -> bool,
) {
    let domains = search.domains;
    let mut sequence = Sequence(0x2545_f491_4f6c_dd1d);
    let hot = domains.gain.iter().sum::<i64>() as f64 * domains.threads as f64 / 10.0 + 2.0;
    let cold = hot.min(1.5);
    let cooling = (cold / hot).powf(64.0 / moves.max(64) as f64);
    let mut heat = hot;
    let mut value = search.objective();
    let mut broken = search.broken();
    let mut best = if broken > 0 { i64::MIN } else { value };
    let gains = domains.gain.iter().sum::<i64>();
    let fine = gains * domains.threads as i64 * 3 / 5 + 1;
    let mut kept = search.places();
    let count = search.threads();
    for turn in 0..moves {
        if turn % 64 == 0 {
            heat *= cooling;
            if turn % 256 == 0 && out_of_budget() {
                break;
            }
        }
        let first = sequence.below(count);
        let here = search.thread(first);
        let near = sequence.below(8);
        let to = if near < 6 && domains.mode == Mode::Compact && domains.threads > 1 {
            let own = usize::from(here.worker) * domains.threads;
            let other = search.thread(own + sequence.below(domains.threads));
            let level = 1 + sequence.below(LEVELS - 1);
            let members = domains.members(level, domains.domain(level, other.cpu.into()));
            members.start + sequence.below(members.len())
        } else {
            sequence.below(domains.cpus)
        };
        if to == usize::from(here.cpu) {
            continue;
        }
        let chance = f64::from(sequence.below(1 << 20) as u32 + 1) / f64::from(1 << 20);
        let floor = (heat * chance.ln()) as i64;
        let gained = if sequence.below(8) == 0 {
            search.try_shift((first, to), fine, floor)
        } else {
            let held = search.on_cpu(to);
            if held.is_empty() {
                search.try_shift((first, to), fine, floor)
            } else {
                let second = held[sequence.below(held.len())] as usize;
                search.try_exchange((first, second), fine, floor)
            }
        };
        let Some((gained, more)) = gained else {
            continue;
        };
        value += gained;
        broken += more;
        if broken == 0 && value > best {
            best = value;
            search.copy_places(&mut kept);
            if best >= goal {
                return;
            }
        }
    }
    if value < best || broken > 0 {
        search.restore(&kept);
    }
}
