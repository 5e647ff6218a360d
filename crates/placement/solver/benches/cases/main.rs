//! Prints a table with the columns: case, objective, bound, optimal, gap, micros, micros with the
//! mapping in force given, the stage that produced the answer, whether counts alone confirm the
//! bound, and the relaxed rules; then the time to solve again after a respawn, a sweep over random
//! problems, and the peak memory of all this.
//!
//! The 72 cases of the source article (W, T in {2,4,6,8,12,16}, both modes, one socket, 16 cores x
//! 2 cpus, one L3), every kind of machine, 64 x 64 on 256 cpus. Each case is solved several times;
//! micros is the minimum. Every answer is checked. `cargo bench -p albacore-solver --bench cases --
//! sweep 5000 7` only sweeps over 5,000 problems from seed 7, `-- respawn` only solves again. The
//! gap is computed in two ways: relative to the objective, and relative to the sum of its terms,
//! all distances that it adds or subtracts. In compact mode the objective is the distances of the
//! mains minus those within workers; where that is near 0, a percentage of it is meaningless.
#![allow(clippy::expect_used)] // a benchmark has no caller to return an error to

mod machines;
mod respawn;
mod sweep;
mod table;

use albacore_solver::Mode;

use machines::{ARTICLE, LARGE, hybrid, machine, unequal_caches, within};
use respawn::respawn;
use table::{peak_kib, run, summary};

const SIZES: [u16; 6] = [2, 4, 6, 8, 12, 16];
const MODES: [Mode; 2] = [Mode::Scatter, Mode::Compact];
/// Default number of random problems of the sweep.
const SWEEP: u32 = 1_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
    if words.first().is_some_and(|word| word == "sweep") {
        return sweep::sweep(number(1).unwrap_or(SWEEP), number(2).unwrap_or(1).into());
    }
    if words.first().is_some_and(|word| word == "respawn") {
        return respawns();
    }
    table::head();
    if words.first().is_some_and(|word| word == "one") {
        return one(&words[1..]);
    }
    let article = machine(ARTICLE);
    let mut rows = Vec::new();
    for mode in MODES {
        for workers in SIZES {
            for threads in SIZES {
                rows.push(run("1x1x16x1x2", &article, (workers, threads, mode)));
            }
        }
    }
    summary("72 cases of the article", &rows);
    let kinds = [
        ("2 packages", machine([2, 1, 16, 1, 2])),
        ("2 packages, 2 L3 each", machine([2, 2, 8, 1, 2])),
        ("4 L3 of 3 cores", machine([1, 4, 3, 1, 2])),
        ("L2 shared by 4", machine([1, 2, 4, 4, 1])),
        ("L2 shared by 2", machine([2, 1, 4, 2, 2])),
        ("no SMT", machine([2, 4, 16, 1, 1])),
        ("SMT 4", machine([1, 4, 8, 1, 4])),
        ("half cores", within(ARTICLE, "0-15,16-20")),
        ("one half core", within(ARTICLE, "0-7,16-22")),
        (
            "a hole in 2 packages",
            within([2, 2, 8, 1, 2], "3-40,50-60"),
        ),
        ("hybrid", hybrid()),
        ("unequal L3", unequal_caches()),
        ("256 cpus, 16 L3", machine(LARGE)),
        ("256 cpus, 2 L3", machine([2, 1, 64, 1, 2])),
        ("255 cpus, 16 L3", within(LARGE, "0-254")),
    ];
    let sizes = [
        (1, 1),
        (3, 5),
        (5, 2),
        (7, 9),
        (16, 16),
        (40, 40),
        (1, 64),
        (64, 1),
        (64, 64),
    ];
    let mut rows = Vec::new();
    for (name, topology) in &kinds {
        for mode in MODES {
            for size in sizes {
                rows.push(run(name, topology, (size.0, size.1, mode)));
            }
        }
    }
    summary("other machines", &rows);
    respawns();
    sweep::sweep(SWEEP, 1);
    println!("# peak resident memory of all this: {} KiB", peak_kib());
}

/// Solves the sizes that must be solved again within 200 microseconds.
fn respawns() {
    for mode in MODES {
        respawn("1x1x16x1x2", &machine(ARTICLE), (16, 16, mode));
        respawn("256 cpus, 16 L3", &machine(LARGE), (64, 64, mode));
    }
}

/// `one 1,4,2,1,2 0-6,8-15 4 4 compact`: one case on the given machine and cpuset.
fn one(words: &[String]) {
    let [shape, cpuset, workers, threads, mode] = words else {
        return println!("one SHAPE CPUSET WORKERS THREADS MODE");
    };
    let sizes: Vec<u32> = shape.split(',').filter_map(|n| n.parse().ok()).collect();
    let shape = sizes.try_into().expect("packages,l3,l2,cores,cpus");
    let size = |word: &String| word.parse().expect("a number");
    let mode = MODES[usize::from(mode == "compact")];
    run(
        "one",
        &within(shape, cpuset),
        (size(workers), size(threads), mode),
    );
}
