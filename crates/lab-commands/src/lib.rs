//! The subcommands of `albacore` that measure and simulate and that no server or controller needs: `simulate`,
//! `partition`, `bench serve`, `bench scheduler`. One module each: `Args` are its options, `run` does it.
#![forbid(unsafe_code)]

pub mod bench_scheduler;
pub mod bench_serve;
pub mod partition;
pub mod simulate;
