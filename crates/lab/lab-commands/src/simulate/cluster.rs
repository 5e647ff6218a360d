//! Compares routings of requests to pods.

use std::fmt::Write as _;
use std::time::Duration;

use albacore_batching::Nanos;
use albacore_command::{Failure, print, print_json};
use albacore_simulator::{Cluster, ClusterFigures, Failures, Routing, Scenario};
use serde_json::json;

use super::progress::Progress;
use super::{json_of, round};
use crate::bench_serve::{parse_percentile, parse_time};

/// Maximum number of pods of a cluster.
const PODS_MAX: i64 = 1000;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "With --cluster")]
#[group(requires = "is_cluster")]
pub(crate) struct ClusterArgs {
    /// Numbers of pods to compare
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u32).range(1..=PODS_MAX))]
    pods: Vec<u32>,
    /// Round-trip cost of one more machine on the path, in microseconds: before each batch of
    /// central, and for each forwarded request
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "0,100,200,300"
    )]
    hop_us: Vec<u32>,
    /// Routing policies: central (one scheduler over the workers of all pods), random, round-robin,
    /// least-request, p2c (power of two choices), p2c-stale (by the pods' last reports), orca
    /// (weights by reported load factor, as in gRPC clients), orca-work (weights by the work of
    /// answered requests)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = parse_routing,
        default_value = "central,random,round-robin,least-request,p2c,p2c-stale,orca,orca-work"
    )]
    routing: Vec<Routing>,
    /// Also run each routing policy except central with forwarding: a pod forwards a request that
    /// it cannot answer in time, once, to a pod that reported that it can
    #[arg(long = "forward")]
    is_forwarding: bool,
    /// Slow down N of the pods by FACTOR, as in 1:3
    #[arg(long, value_name = "N:FACTOR", value_parser = parse_slow)]
    slow: Option<(usize, f64)>,
    /// Interval between pod failures; each affects a random pod, and the requests that it accepted
    /// are lost
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    fail: Option<Duration>,
    /// Time from the failure of a pod to its return
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "500ms",
          requires = "fail")]
    down: Duration,
    /// Delay until clients and peers notice a failure or a return
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1ms",
          requires = "fail")]
    notice: Duration,
    /// Clients resend lost requests once
    #[arg(long = "retry", requires = "fail")]
    is_retried: bool,
    /// Number of clients or proxies that route without seeing each other's requests
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=PODS_MAX))]
    routers: u32,
    /// Interval at which pods report load and capacity
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "100ms")]
    report: Duration,
    /// Interval at which weights are computed
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1s")]
    weigh: Duration,
    /// How long a pod must have reported before it gets its own weight
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10s")]
    blackout: Duration,
    /// Percentage of every model's requests that must be answered in time
    #[arg(long, value_name = "PERCENT", value_parser = parse_percentile, default_value = "99")]
    good: f64,
    /// Rate at which bad requests and latencies are shown, as a percentage of the goodput of
    /// central without hops
    #[arg(long, value_name = "PERCENT", default_value_t = 80,
          value_parser = clap::value_parser!(u32).range(1..=200))]
    load: u32,
}

fn parse_routing(text: &str) -> Result<Routing, String> {
    Routing::from_name(text).ok_or_else(|| {
        let names: Vec<_> = Routing::ALL.map(Routing::name).into();
        format!("write one of {}", names.join(", "))
    })
}

fn parse_slow(text: &str) -> Result<(usize, f64), String> {
    let parsed = text.split_once(':').and_then(|(pods, factor)| {
        let factor: f64 = factor.parse().ok()?;
        let factor = Some(factor).filter(|factor| (0.01..=100.0).contains(factor))?;
        Some((pods.parse().ok()?, factor))
    });
    parsed
        .ok_or_else(|| "write a number of pods and a factor of 0.01 to 100, such as 1:3".to_owned())
}

/// A routing with a number of pods.
#[derive(Clone, Copy)]
struct Case {
    pods: u32,
    routing: Routing,
    is_forwarding: bool,
    /// `None` if the routing has no hop: the row is valid for all of them.
    hop_us: Option<u32>,
}

struct Row {
    case: Case,
    /// Mean over the seeds.
    goodput: f64,
    /// Ratio to the goodput of central routing without hops.
    share: f64,
    /// Rate of `figures`, which are those of the first seed.
    rate: f64,
    figures: ClusterFigures,
}

pub(super) fn run(
    scenario: &Scenario,
    args: &ClusterArgs,
    seeds: u32,
    is_text: bool,
) -> Result<(), Failure> {
    if let Some(((slow, _), pods)) = args.slow.zip(args.pods.iter().min())
        && slow > *pods as usize
    {
        let what = format!("--slow {slow} is more than --pods {pods}: write at most as many");
        return Err(Failure::Usage(what));
    }
    let mut rows = Vec::new();
    let mut search = Search {
        good_share: args.good / 100.0,
        seeds,
        progress: Progress::new(),
    };
    for &pods in &args.pods {
        let central = Case {
            pods,
            routing: Routing::Central,
            is_forwarding: false,
            hop_us: None,
        };
        let best = search.goodput(&cluster(scenario, args, central));
        if best == 0.0 {
            let good = args.good;
            let what =
                format!("central: at no rate {good} % of every model's requests are in time");
            return Err(Failure::Failed(what));
        }
        let rate = best * f64::from(args.load) / 100.0;
        for case in cases(args, pods) {
            let cluster = cluster(scenario, args, case);
            let goodput = search.goodput(&cluster);
            rows.extend(cluster.at_rate(rate).run().map(|figures| Row {
                case,
                goodput,
                share: goodput / best,
                rate,
                figures,
            }));
        }
    }
    drop(search);
    match is_text {
        true => print(&text(&rows, args)),
        false => print_json(&json!({ "rows": rows.iter().map(as_json).collect::<Vec<_>>() })),
    }
}

struct Search {
    good_share: f64,
    seeds: u32,
    progress: Progress,
}

impl Search {
    /// Mean over the seeds.
    fn goodput(&mut self, cluster: &Cluster) -> f64 {
        let found = (0..self.seeds).map(|n| {
            let mut cluster = cluster.clone();
            cluster.pod.seed += u64::from(n);
            cluster.goodput(self.good_share, &mut |requests| self.progress.add(requests))
        });
        found.sum::<f64>() / f64::from(self.seeds)
    }
}

/// Cases of a number of pods; a routing without hops has only one.
fn cases(args: &ClusterArgs, pods: u32) -> Vec<Case> {
    let mut cases = Vec::new();
    for &routing in &args.routing {
        let is_central = routing == Routing::Central;
        let alone = Case {
            pods,
            routing,
            is_forwarding: false,
            hop_us: None,
        };
        if !is_central {
            cases.push(alone);
        }
        if is_central || args.is_forwarding {
            cases.extend(args.hop_us.iter().map(|&hop_us| Case {
                is_forwarding: !is_central,
                hop_us: Some(hop_us),
                ..alone
            }));
        }
    }
    cases
}

fn cluster(scenario: &Scenario, args: &ClusterArgs, case: Case) -> Cluster {
    let mut slowness = vec![1.0; case.pods as usize];
    if let Some((slow, factor)) = args.slow {
        slowness[..slow].fill(factor);
    }
    Cluster {
        pod: scenario.clone(),
        slowness,
        routing: case.routing,
        hop: Nanos(u64::from(case.hop_us.unwrap_or(0)) * 1000),
        is_forwarding: case.is_forwarding,
        failures: args.fail.map(|every| Failures {
            every: every.into(),
            down: args.down.into(),
            notice: args.notice.into(),
            is_retried: args.is_retried,
        }),
        routers: args.routers as usize,
        report_every: args.report.into(),
        weigh_every: args.weigh.into(),
        blackout: args.blackout.into(),
    }
}

fn ms(time: Nanos) -> f64 {
    round(time.0 as f64 / 1e6, 3)
}

fn as_json(row: &Row) -> serde_json::Value {
    let done = &row.figures;
    let mut value = json_of(&done.figures);
    let more = json!({
        "pods": row.case.pods,
        "hop_us": row.case.hop_us,
        "routing": row.case.routing.name(),
        "forwarding": row.case.is_forwarding,
        "goodput": round(row.goodput, 1),
        "share_of_central": round(row.share, 4),
        "rate": round(row.rate, 1),
        "answer_p50_ms": ms(done.answer_p50),
        "answer_p99_ms": ms(done.answer_p99),
        "in_time": done.in_time,
        "late": done.late,
        "refused": done.refused,
        "lost": done.lost,
        "forwarded": done.forwarded,
        "retried": done.retried,
    });
    if let (Some(value), serde_json::Value::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
    }
    value
}

/// A Markdown table.
fn text(rows: &[Row], args: &ClusterArgs) -> String {
    let mut out = format!(
        "Goodput: requests a second of which {} % are in time. Bad requests, latencies and \
         forwarded requests at {} % of the goodput of central without hops.\n\n\
         | Pods | Routing | Hop, us | Goodput/s | Of central, % | Bad, % | Lost, % | Forwarded, % \
         | p50, ms | p99, ms |\n|---|---|---|---|---|---|---|---|---|---|\n",
        args.good, args.load
    );
    for row in rows {
        let done = &row.figures;
        let percent = |count: u64| count as f64 * 100.0 / done.figures.offered.max(1) as f64;
        // infallible: writing to a String.
        let _ = writeln!(
            out,
            "| {} | {}{} | {} | {:.0} | {:.1} | {:.2} | {:.3} | {:.2} | {:.2} | {:.2} |",
            row.case.pods,
            row.case.routing.name(),
            if row.case.is_forwarding {
                " + forward"
            } else {
                ""
            },
            row.case
                .hop_us
                .map_or_else(|| "any".to_owned(), |hop| hop.to_string()),
            row.goodput,
            row.share * 100.0,
            percent(done.figures.bad),
            percent(done.lost),
            percent(done.forwarded),
            ms(done.answer_p50),
            ms(done.answer_p99),
        );
    }
    out
}
