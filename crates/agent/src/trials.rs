//! The trials of this node's pods: which policy each window has, and the readings of its ends.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use albacore_os::{HostRoot, Pid, read_usage};
use albacore_placer::SubjectState;
use albacore_plan::{Enforcement, Placement};

use crate::limits::{SCRAPE_BYTES_MAX, SCRAPE_TIME_MAX};
use crate::trial::{Doing, Reading, Trial, TrialSpec};
use crate::wish::{Aim, Wish};

/// The port of the built-in server, on which it tells its metrics.
const SERVER_PORT: u16 = 8080;

/// The server's histogram of times from a request's arrival to its reply.
const LATENCY: &str = "total_duration_seconds_bucket{";

/// A pod's trial, and what it is a trial of: another container or another spec is tried anew.
#[derive(Clone, Debug)]
struct Tried {
    container: String,
    generation: i64,
    trial: Trial,
}

/// All trials of the node; by uid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trials {
    tried: BTreeMap<String, Tried>,
}

impl Trials {
    /// Puts into the wishes what each trial does now. Trials of pods that are not wished for any more are forgotten.
    pub(crate) fn apply(&mut self, wishes: &mut [Wish], now: Instant) {
        let is_wished = |uid: &String| wishes.iter().any(|wish| wish.pod.uid == *uid);
        self.tried.retain(|uid, _| is_wished(uid));
        for wish in wishes {
            let Aim::Place {
                container,
                policy,
                generation,
                trial: Some(spec),
                ..
            } = &mut wish.aim
            else {
                self.tried.remove(&wish.pod.uid);
                continue;
            };
            if policy.enforcement == Enforcement::Observe || policy.placement == Placement::None {
                continue;
            }
            let is_other = |t: &Tried| t.container != *container || t.generation != *generation;
            if self.tried.get(&wish.pod.uid).is_none_or(is_other) {
                let tried = Tried {
                    container: container.clone(),
                    generation: *generation,
                    trial: Trial::new(*spec, now),
                };
                self.tried.insert(wish.pod.uid.clone(), tried);
            }
            let doing = self.tried.get(&wish.pod.uid).map(|t| t.trial.doing());
            let is_without = matches!(
                doing,
                Some(Doing::Window { has_plan: false } | Doing::Withdrawn(_))
            );
            if is_without {
                policy.placement = Placement::None;
            }
        }
    }

    /// When the next reading is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.tried.values().filter_map(|t| t.trial.due()).min()
    }

    /// Takes the readings that are due; true if a window ended or began.
    pub(crate) fn advance(
        &mut self,
        wishes: &[Wish],
        read: impl Fn(&Wish) -> Option<Reading>,
        now: Instant,
    ) -> bool {
        let mut is_changed = false;
        for wish in wishes {
            let Some(tried) = self.tried.get_mut(&wish.pod.uid) else {
                continue;
            };
            if tried.trial.due().is_some_and(|due| due <= now) {
                tried.trial.take(read(wish), now);
                is_changed = true;
                if let Doing::Kept(why) = tried.trial.doing() {
                    tracing::info!(pod = %wish.pod.key, why, "the plan stays");
                }
            }
        }
        is_changed
    }

    /// Why a pod's plan is not in force: it was withdrawn, or this window is without it.
    pub(crate) fn withdrawn(&self, uid: &str) -> Option<String> {
        match self.tried.get(uid)?.trial.doing() {
            Doing::Withdrawn(why) => Some(why),
            _ => None,
        }
    }

    /// How far a pod's trial is.
    pub(crate) fn progress(&self, uid: &str) -> Option<String> {
        self.tried.get(uid)?.trial.progress()
    }
}

/// What a deployment asks for.
pub(crate) fn trial_spec(asked: &albacore_api::Trial) -> TrialSpec {
    TrialSpec {
        window: asked.window.duration(),
        pairs: asked.windows,
    }
}

/// Reads the counters of a pod: its server's histogram over HTTP, its workers' cpu time from the kernel.
pub(crate) fn read(
    host: &HostRoot,
    wish: &Wish,
    workers: &[Pid],
    state: Option<&SubjectState>,
) -> Option<Reading> {
    let address: IpAddr = wish.pod.addresses.first()?.parse().ok()?;
    let text = fetch(SocketAddr::new(address, SERVER_PORT)).ok()?;
    let mut reading = Reading {
        latency: parse_latency(&text)?,
        migrations: Some(0),
        ..Reading::default()
    };
    if state.is_some_and(|state| state.workers_found == 0) || workers.is_empty() {
        return None;
    }
    for pid in workers {
        let usage = read_usage(host, *pid).ok()?;
        reading.cpu_micros += usage.running_micros;
        let sum = reading.migrations.zip(usage.migrations);
        reading.migrations = sum.map(|(a, b)| a + b);
        reading.processes.push(pid.0);
    }
    reading.processes.sort_unstable();
    Some(reading)
}

/// The metrics of a server, within [`SCRAPE_TIME_MAX`] twice: to connect, and to read.
fn fetch(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, SCRAPE_TIME_MAX)?;
    stream.set_write_timeout(Some(SCRAPE_TIME_MAX))?;
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let start = Instant::now();
    let (mut answer, mut part) = (Vec::new(), [0_u8; 16384]);
    // bound: SCRAPE_BYTES_MAX and SCRAPE_TIME_MAX.
    while answer.len() < SCRAPE_BYTES_MAX {
        let left = SCRAPE_TIME_MAX.saturating_sub(start.elapsed());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut part)? {
            0 => return Ok(String::from_utf8_lossy(&answer).into_owned()),
            count => answer.extend(&part[..count]),
        }
    }
    Err(std::io::Error::other("the answer does not end"))
}

/// Buckets of the latency histogram, summed up over models; `None` if there is none.
fn parse_latency(text: &str) -> Option<Vec<(f64, u64)>> {
    let mut sums: Vec<(f64, u64)> = Vec::new();
    for line in text.lines().filter(|line| line.contains(LATENCY)) {
        let (_, labels) = line.split_once(LATENCY)?;
        let (labels, count) = labels.split_once("} ")?;
        let (_, end) = labels.split_once("le=\"")?;
        let end = match end.split('"').next()? {
            "+Inf" => f64::INFINITY,
            number => number.parse().ok()?,
        };
        let count = count.split_whitespace().next()?.parse::<f64>().ok()? as u64;
        match sums.iter_mut().find(|(known, _)| *known == end) {
            Some((_, sum)) => *sum += count,
            None => sums.push((end, count)),
        }
    }
    sums.sort_by(|a, b| a.0.total_cmp(&b.0));
    (!sums.is_empty()).then_some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_of_all_models_are_one() {
        let text = "# TYPE albacore_total_duration_seconds histogram\n\
            albacore_total_duration_seconds_bucket{le=\"0.001\",model=\"a\"} 1\n\
            albacore_total_duration_seconds_bucket{le=\"+Inf\",model=\"a\"} 3\n\
            albacore_total_duration_seconds_bucket{model=\"b\",le=\"0.001\"} 4 # {} 0.1\n\
            albacore_total_duration_seconds_bucket{model=\"b\",le=\"+Inf\"} 4\n";
        let found = parse_latency(text);
        assert_eq!(found, Some(vec![(0.001, 5), (f64::INFINITY, 7)]));
        assert_eq!(parse_latency("nothing of the kind"), None);
    }
}
