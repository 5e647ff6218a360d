//! Random problems up to 64 x 64 on 256 cpus: how many are optimal, the worst gap, the worst time.

use albacore_solver::Mode;

use crate::machines::random;
use crate::table::{Row, gap, gap_of_terms, problem, summary, timed};

/// Solves `count` random problems; prints those with a gap over 1 % or that took over 50 ms, then
/// the summaries.
pub(crate) fn sweep(count: u32, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |n: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 33) % u64::from(n)) as u32
    };
    let mut rows: [Vec<Row>; 2] = Default::default();
    for _ in 0..count {
        let (name, topology) = random(&mut below);
        let most = [4, 16, 64][below(3) as usize];
        let (workers, threads) = (1 + below(most) as u16, 1 + below(most) as u16);
        let mode = [Mode::Scatter, Mode::Compact][below(2) as usize];
        let mut problem = problem(&topology, (workers, threads, mode));
        let (solution, branch, micros) = timed(&problem, 1);
        problem.current = Some(solution.mapping.clone());
        let (_, _, again) = timed(&problem, 1);
        let stated = &solution.certificate;
        let row = Row {
            micros,
            again,
            optimal: stated.optimal,
            gap: gap(stated),
            gap_of_terms: gap_of_terms(&problem, &solution),
        };
        if row.gap > 0.01 || micros > 50_000 {
            println!(
                "# {name} {workers}x{threads} {mode:?}: {} of {}, gap {:.3} %, {micros} us, {branch:?}, {:?}",
                stated.objective,
                stated.bound,
                row.gap * 100.0,
                stated.relaxed,
            );
        }
        rows[usize::from(mode == Mode::Compact)].push(row);
    }
    summary("sweep, scatter", &rows[0]);
    summary("sweep, compact", &rows[1]);
}
