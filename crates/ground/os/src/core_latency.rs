//! Core-to-core latency: the time to transfer a cache line from one cpu to another.
//!
//! Two threads, each pinned to one of the cpus, alternately write to a line that the other reads
//! (ping-pong). Half of a round trip is the one-way latency: from a store to the load that observes
//! it.
//!
//! Distances are in clock cycles, but no portable counter counts cycles: the time counter of a cpu
//! runs at a fixed rate, and hypervisors hide the performance counters. The duration of a cycle is
//! measured like lmbench's `mhz` (Staelin and McVoy, "mhz: Anatomy of a micro-benchmark", 1998):
//! with a chain of dependent instructions. A rotation and an addition take one cycle each on x86-64
//! and Arm servers. The chain runs between the round trips, on the same cpu, so both are measured
//! at the same clock frequency.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, ScopedJoinHandle, scope};
use std::time::{Duration, Instant};
use std::{io, panic};

use albacore_topology::{CpuId, CpuSet};

use crate::limits::{ANSWER_TIME_MAX, CHAIN_STEPS, LATENCY_BATCH, LATENCY_LINES, SPINS};
use crate::{FUTEX_BYTES, MaskError, OsError, SharedMemory, current_thread, write_mask};

/// 64-bit words per line: 128 bytes, because some cpus prefetch lines in pairs.
const LINE_WORDS: usize = 16;

/// Value with which the second thread reports that it is pinned: the reply to a ping 0, which is
/// never sent.
const READY: u64 = 1;

/// Value that stops the exchange.
const STOP: u64 = u64::MAX;

/// One-way latency between two cpus.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CoreLatency {
    pub nanos: f64,
    /// Clock cycles of the first cpu.
    pub cycles: f64,
}

/// Reason why the latency between two cpus could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CoreLatencyError {
    /// A thread could not be pinned to one of the cpus.
    #[error("cannot pin a thread to cpu {cpu}")]
    Pin { cpu: CpuId, source: MaskError },
    /// One of the cpus does not run its thread.
    #[error(
        "cpus {a} and {b} exchanged too few messages within {seconds} s: one of them is offline, \
         throttled or in use by another program"
    )]
    Silent { a: CpuId, b: CpuId, seconds: f64 },
    /// Shared memory could not be allocated.
    #[error("cannot allocate shared memory")]
    Memory(#[from] OsError),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
}

/// Measures for about `time`. Uses the fastest batch of each line, which discards preempted ones.
/// The affinity mask of the calling thread is unchanged.
///
/// # Errors
/// See [`CoreLatencyError`].
pub fn measure_latency(
    a: CpuId,
    b: CpuId,
    time: Duration,
) -> Result<CoreLatency, CoreLatencyError> {
    scope(|threads| join(Builder::new().spawn_scoped(threads, || ping(a, b, time))?))
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| panic::resume_unwind(panic))
}

fn pin(cpu: CpuId) -> Result<(), CoreLatencyError> {
    let mask: CpuSet = [cpu].into_iter().collect();
    write_mask(current_thread(), &mask).map_err(|source| CoreLatencyError::Pin { cpu, source })
}

fn ping(a: CpuId, b: CpuId, time: Duration) -> Result<CoreLatency, CoreLatencyError> {
    pin(a)?;
    // New memory is allocated on the NUMA node of the cpu that touches it first.
    let bytes = FUTEX_BYTES + LATENCY_LINES * LINE_WORDS * size_of::<u64>();
    let words = SharedMemory::create("core-latency", bytes)?.map_words()?;
    let lines: Vec<&AtomicU64> = words.words().iter().step_by(LINE_WORDS).collect();
    set_all(&lines, 0);
    let deadline = Instant::now() + time + ANSWER_TIME_MAX;
    scope(|threads| {
        let partner = Builder::new().spawn_scoped(threads, || pong(b, &lines, deadline))?;
        let measured = bounce(&lines, time, deadline);
        set_all(&lines, STOP);
        join(partner)?;
        measured.ok_or_else(|| CoreLatencyError::Silent {
            a,
            b,
            seconds: (time + ANSWER_TIME_MAX).as_secs_f64(),
        })
    })
}

fn set_all(lines: &[&AtomicU64], value: u64) {
    for line in lines {
        line.store(value, Ordering::Release);
    }
}

/// Values that the first thread writes in a batch, in order; the reply is the value plus one.
fn pings(batch: u64) -> impl Iterator<Item = u64> {
    (batch * LATENCY_BATCH + 1..=(batch + 1) * LATENCY_BATCH).map(|trip| 2 * trip)
}

/// Second thread: replies until it is stopped.
fn pong(cpu: CpuId, lines: &[&AtomicU64], deadline: Instant) -> Result<(), CoreLatencyError> {
    if let Err(error) = pin(cpu) {
        set_all(lines, STOP);
        return Err(error);
    }
    if let Some(first) = lines.first() {
        first.store(READY, Ordering::Release);
    }
    for (batch, line) in (0..).zip(lines.iter().cycle()) {
        for value in pings(batch) {
            if !wait_for(line, value, deadline) {
                return Ok(());
            }
            line.store(value + 1, Ordering::Release);
        }
    }
    Ok(())
}

/// First thread: the mean over all lines of their fastest batches; `None` if the second thread does
/// not reply before `deadline`.
fn bounce(lines: &[&AtomicU64], time: Duration, deadline: Instant) -> Option<CoreLatency> {
    if !wait_for(lines.first()?, READY, deadline) {
        return None;
    }
    let start = Instant::now();
    let mut fastest = vec![Duration::MAX; lines.len()];
    let mut chain = Duration::MAX;
    let turns = lines.iter().enumerate().cycle();
    for (batch, (index, line)) in (0u64..).zip(turns) {
        if index == 0 && batch > 0 && start.elapsed() >= time {
            break;
        }
        let begin = Instant::now();
        for value in pings(batch) {
            line.store(value, Ordering::Release);
            if !wait_for(line, value + 1, deadline) {
                return None;
            }
        }
        fastest[index] = fastest[index].min(begin.elapsed());
        chain = chain.min(time_chain());
    }
    let trips = (lines.len() as u64 * LATENCY_BATCH) as f64;
    let total: Duration = fastest.iter().sum();
    let nanos = total.as_secs_f64() * 1e9 / trips / 2.0;
    let cycle_nanos = chain.as_secs_f64() * 1e9 / f64::from(2 * CHAIN_STEPS);
    Some(CoreLatency {
        nanos,
        cycles: nanos / cycle_nanos,
    })
}

/// Waits until `line` contains `value`; false on [`STOP`] or at `deadline`.
fn wait_for(line: &AtomicU64, value: u64, deadline: Instant) -> bool {
    // bound: the deadline.
    loop {
        for _ in 0..SPINS {
            // No pause instruction: it takes up to 140 cycles, longer than the latency being
            // measured.
            match line.load(Ordering::Acquire) {
                STOP => return false,
                found if found == value => return true,
                _ => {}
            }
        }
        if Instant::now() >= deadline {
            return false;
        }
    }
}

/// Duration of [`CHAIN_STEPS`] steps of two cycles each.
fn time_chain() -> Duration {
    let begin = Instant::now();
    let mut value = black_box(1u64);
    for _ in 0..CHAIN_STEPS {
        value = value.rotate_left(7).wrapping_add(0x9e37_79b9);
    }
    black_box(value);
    begin.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostRoot, read_mask};

    #[test]
    fn two_cpus_of_this_process_have_a_latency_and_the_caller_keeps_its_mask() {
        let host = HostRoot::live();
        let before = read_mask(&host, current_thread()).unwrap();
        let cpus: Vec<CpuId> = before.iter().take(2).collect();
        let &[a, b] = &cpus[..] else {
            panic!("a process with two cpus is needed")
        };
        let latency = measure_latency(a, b, Duration::from_millis(50)).unwrap();
        println!("{latency:?}");
        // On any machine: a transfer takes several cycles of a clock between 0.1 and 10 GHz.
        assert!(latency.cycles > 2.0, "{latency:?}");
        let frequency = latency.cycles / latency.nanos;
        assert!((0.1..10.0).contains(&frequency), "{latency:?}");
        assert_eq!(read_mask(&host, current_thread()).unwrap(), before);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let first = read_mask(&HostRoot::live(), current_thread()).unwrap();
        let first = first.first().unwrap();
        let absent = CpuId(CpuSet::MAX_ID);
        for (a, b) in [(first, absent), (absent, first)] {
            let error = measure_latency(a, b, Duration::from_millis(1)).unwrap_err();
            assert!(matches!(error, CoreLatencyError::Pin { cpu, .. } if cpu == absent));
        }
    }

    #[test]
    fn waits_end_at_the_deadline_or_on_stop() {
        let line = AtomicU64::new(6);
        let (past, later) = (Instant::now(), Instant::now() + Duration::from_secs(3_600));
        assert!(!wait_for(&line, 7, past));
        assert!(wait_for(&line, 6, past));
        assert!(bounce(&[&line], Duration::ZERO, past).is_none());
        line.store(STOP, Ordering::Release);
        assert!(!wait_for(&line, 7, later));
        assert!(bounce(&[&line], Duration::ZERO, later).is_none());
    }
}
