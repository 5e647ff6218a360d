//! Load of the machine and of the server's threads during a window, from differences of counters.

use std::time::Instant;

use albacore_os::{HostRoot, Pid, ProcessUsage, read_children, read_usage};

use crate::record::{Host, Usage};

/// Ticks per second in `/proc/stat`: 100 on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Share of steal time over all cpus above which a window is disturbed: one of 32 cpus stolen for a
/// third of the window.
const STEAL_MAX: f64 = 0.01;

/// The same for the CPU time of other processes.
const OTHERS_MAX: f64 = 0.05;

/// Share of the time in which all threads stall for memory or I/O above which a window is
/// disturbed: the load itself causes no such stalls.
const STALL_MAX: f64 = 0.01;

/// Counters at the start of a window.
#[derive(Debug)]
pub struct HostLoad {
    at: Instant,
    cpus: CpuTimes,
    psi: [Option<f64>; 3],
    usage: ProcessUsage,
    own: f64,
    server: Pid,
}

/// Totals over all cpus, seconds.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTimes {
    busy: f64,
    steal: f64,
    /// Including idle time.
    all: f64,
}

impl HostLoad {
    /// Reads the counters; `server` is the root of the server's process tree.
    #[must_use]
    pub fn start(server: Pid) -> Self {
        let host = HostRoot::live();
        Self {
            at: Instant::now(),
            cpus: cpu_times(&host),
            psi: stalls(&host),
            usage: usage_below(&host, server),
            own: own_seconds(&host),
            server,
        }
    }

    /// CPU time of this process, the load generator, since the start.
    #[must_use]
    pub fn generator_seconds(&self) -> f64 {
        own_seconds(&HostRoot::live()) - self.own
    }

    /// Usage and host load since the start.
    #[must_use]
    pub fn end(&self) -> (Usage, Host) {
        let host = HostRoot::live();
        let seconds = self.at.elapsed().as_secs_f64();
        let usage = usage_below(&host, self.server);
        let micros = |after: u64, before: u64| after.saturating_sub(before) as f64 / 1e6;
        let used = Usage {
            cpu_seconds: micros(usage.running_micros, self.usage.running_micros),
            run_delay_seconds: micros(usage.waiting_micros, self.usage.waiting_micros),
            migrations: usage
                .migrations
                .zip(self.usage.migrations)
                .map(|(after, before)| after.saturating_sub(before)),
        };
        let cpus = cpu_times(&host);
        let all = (cpus.all - self.cpus.all).max(f64::MIN_POSITIVE);
        let own = own_seconds(&host) - self.own;
        let others = cpus.busy - self.cpus.busy - used.cpu_seconds - own;
        let psi = stalls(&host);
        let stalled = |index: usize| Some((psi[index]? - self.psi[index]?) / seconds);
        let host = Host {
            steal: (cpus.steal - self.cpus.steal) / all,
            others: (others / all).max(0.0),
            psi_cpu: stalled(0),
            psi_memory: stalled(1),
            psi_io: stalled(2),
            mhz: frequency(&host),
        };
        (used, host)
    }
}

/// Cause of a disturbance, if any.
#[must_use]
pub fn disturbance(host: &Host) -> Option<String> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let stalled = |share: Option<f64>| share.filter(|&share| share > STALL_MAX);
    if host.steal > STEAL_MAX {
        Some(format!(
            "the hypervisor took {} of the cpus",
            percent(host.steal)
        ))
    } else if host.others > OTHERS_MAX {
        Some(format!(
            "other processes used {} of the cpus",
            percent(host.others)
        ))
    } else if let Some(share) = stalled(host.psi_memory) {
        Some(format!(
            "all threads waited for memory for {} of the time",
            percent(share)
        ))
    } else {
        stalled(host.psi_io).map(|share| {
            format!(
                "all threads waited for disks for {} of the time",
                percent(share)
            )
        })
    }
}

/// Parses the line `cpu  user nice system idle iowait irq softirq steal ...`.
fn cpu_times(host: &HostRoot) -> CpuTimes {
    let text = std::fs::read_to_string(host.proc.join("stat")).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line
        .split_ascii_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|ticks| ticks.parse().ok())
        .collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks[..] else {
        return CpuTimes::default();
    };
    let busy = user + nice + system + irq + softirq;
    CpuTimes {
        busy: busy / TICKS_PER_SECOND,
        steal: steal / TICKS_PER_SECOND,
        all: (busy + steal + idle + iowait) / TICKS_PER_SECOND,
    }
}

/// Total stall times in seconds: `some` of cpus, `full` of memory and disks.
fn stalls(host: &HostRoot) -> [Option<f64>; 3] {
    let of = |file: &str, kind: &str| {
        let text = std::fs::read_to_string(host.proc.join("pressure").join(file)).ok()?;
        let line = text.lines().find(|line| line.starts_with(kind))?;
        let total = line.rsplit_once("total=")?.1.parse::<f64>().ok()?;
        Some(total / 1e6)
    };
    [of("cpu", "some"), of("memory", "full"), of("io", "full")]
}

/// CPU time of this process, which sends the load, seconds.
fn own_seconds(host: &HostRoot) -> f64 {
    let own = own_pid().and_then(|pid| read_usage(host, pid).ok());
    own.map_or(0.0, |usage| usage.running_micros as f64 / 1e6)
}

fn own_pid() -> Option<Pid> {
    i32::try_from(std::process::id()).ok().map(Pid)
}

/// Total usage of the process tree below `root`. A process that exits before its usage is read is
/// skipped.
fn usage_below(host: &HostRoot, root: Pid) -> ProcessUsage {
    let mut sum = ProcessUsage {
        migrations: Some(0),
        ..ProcessUsage::default()
    };
    for pid in below(host, root) {
        let Ok(usage) = read_usage(host, pid) else {
            continue;
        };
        sum.running_micros += usage.running_micros;
        sum.waiting_micros += usage.waiting_micros;
        sum.threads += usage.threads;
        let both = sum.migrations.zip(usage.migrations);
        sum.migrations = both.map(|(sum, more)| sum + more);
    }
    sum
}

/// A process and its descendants.
fn below(host: &HostRoot, root: Pid) -> Vec<Pid> {
    let mut found = vec![root];
    let mut next = 0;
    // bound: each process is queried once; processes that have exited have no children
    while let Some(&pid) = found.get(next) {
        found.extend(read_children(host, pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// Mean current frequency of all cpus.
fn frequency(host: &HostRoot) -> Option<f64> {
    let folder = std::fs::read_dir(host.sys.join("devices/system/cpu")).ok()?;
    let khz: Vec<f64> = folder
        .flatten()
        .filter_map(|cpu| {
            let text = std::fs::read_to_string(cpu.path().join("cpufreq/scaling_cur_freq"));
            text.ok()?.trim().parse().ok()
        })
        .collect();
    (!khz.is_empty()).then(|| khz.iter().sum::<f64>() / khz.len() as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbances_are_named_and_a_quiet_window_has_none() {
        let quiet = Host::default();
        assert_eq!(disturbance(&quiet), None);
        for (host, named) in [
            (
                Host {
                    steal: 0.02,
                    ..quiet
                },
                "hypervisor took 2.0 %",
            ),
            (
                Host {
                    others: 0.10,
                    ..quiet
                },
                "other processes used 10.0 %",
            ),
            (
                Host {
                    psi_memory: Some(0.5),
                    ..quiet
                },
                "memory for 50.0 %",
            ),
            (
                Host {
                    psi_io: Some(0.5),
                    ..quiet
                },
                "disks for 50.0 %",
            ),
        ] {
            assert!(disturbance(&host).unwrap().contains(named), "{host:?}");
        }
        // the load itself may cause waits for cpus
        assert_eq!(
            disturbance(&Host {
                psi_cpu: Some(0.9),
                ..quiet
            }),
            None
        );
    }

    #[test]
    fn work_of_this_process_counts_as_the_servers_when_it_is_the_server() {
        let start = HostLoad::start(own_pid().unwrap());
        let begin = Instant::now();
        let mut spins = 0u64;
        while begin.elapsed().as_millis() < 200 {
            spins = std::hint::black_box(spins + 1);
        }
        let (usage, host) = start.end();
        assert!(usage.cpu_seconds > 0.01, "{usage:?}");
        assert!((0.0..=1.0).contains(&host.others), "{host:?}");
    }
}
