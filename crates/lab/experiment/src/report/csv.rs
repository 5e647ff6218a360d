//! Results as CSV. Names in results contain neither commas nor quotes, except those quoted here.

use std::fmt::Write as _;

use crate::comparison::{Subscription, compare};
use crate::journal::Results;
use crate::record::Window;

use super::reference;

/// One line per window.
pub(super) fn windows(results: &Results) -> String {
    let mut csv = String::from(
        "model,workers,threads,request,policy,trial,seconds,sent,answered,good,p50_us,p95_us,p99_us,server_p99_us,\
         cpu_seconds,run_delay_seconds,migrations,steal,others,psi_cpu,psi_memory,psi_io,mhz,repeats,disturbed\n",
    );
    for window in &results.windows {
        let at = |share| number(window.latency.at(share));
        let (usage, host) = (&window.usage, &window.host);
        let migrations = usage.migrations.map(|count| count as f64);
        // infallible: a String
        let _ = writeln!(
            csv,
            "{},{},{},{},{},{},{},{},{},{:.6},{:.6},{},{:.4},{:.4},{},{},{},{},{},{}",
            key(window),
            window.seconds,
            window.sent,
            window.answered,
            window.good,
            at(0.5),
            at(0.95),
            at(0.99),
            number(window.server.at(0.99)),
            usage.cpu_seconds,
            usage.run_delay_seconds,
            number(migrations),
            host.steal,
            host.others,
            number(host.psi_cpu),
            number(host.psi_memory),
            number(host.psi_io),
            number(host.mhz),
            window.repeats,
            quoted(window.disturbed.as_deref().unwrap_or_default()),
        );
    }
    csv
}

/// One line per setting and policy, relative to the reference.
pub(super) fn comparisons(results: &Results) -> String {
    let mut csv = String::from(
        "model,workers,threads,request,subscription,policy,beside,trials,ratio,low,high\n",
    );
    let (reference, others) = reference(results);
    for arm in others {
        for one in compare(results, arm, reference) {
            let (setting, interval) = (&one.setting, &one.interval);
            let group = Subscription::of(setting, results.header.machine.cpus);
            // infallible: a String
            let _ = writeln!(
                csv,
                "{},{},{},{},{},{},{},{},{:.4},{:.4},{:.4}",
                setting.model,
                setting.workers,
                setting.threads,
                quoted(&setting.request),
                group.name(),
                arm.name(),
                reference.name(),
                interval.count,
                interval.ratio,
                interval.low,
                interval.high
            );
        }
    }
    csv
}

/// One line per stage of each window.
pub(super) fn stages(results: &Results) -> String {
    let mut csv = String::from("model,workers,threads,request,policy,trial,stage,mean_us,p99_us\n");
    for window in &results.windows {
        for (name, stage) in &window.stages {
            // infallible: a String
            let _ = writeln!(
                csv,
                "{},{},{:.1},{}",
                key(window),
                quoted(name),
                stage.mean,
                stage.p99
            );
        }
    }
    csv
}

/// The columns from model to trial.
fn key(window: &Window) -> String {
    let (id, cell) = (&window.id, &window.id.cell);
    format!(
        "{},{},{},{},{},{}",
        cell.model,
        cell.workers,
        cell.threads,
        quoted(&id.request),
        id.arm.name(),
        id.trial
    )
}

/// Empty if there is no value.
fn number(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| {
        format!("{}", (value * 1e4).round() / 1e4)
    })
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
