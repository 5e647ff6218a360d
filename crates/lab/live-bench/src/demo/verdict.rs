//! Conclusion of the demo, as a sentence and a table.

use std::time::Duration;

use albacore_load::{Report, Sample, Summary, percentile, summarize};

use super::{Arm, Findings, WINDOW};

/// Figures of both arms, and the conclusion.
pub(crate) struct Verdict {
    pub(crate) kernel: Summary,
    pub(crate) albacore: Summary,
    /// Kernel's p99 divided by Albacore's, per pair of adjacent windows, sorted.
    pub(crate) ratios: Vec<f64>,
    pub(crate) sentence: String,
}

/// A gain or loss is claimed only if at least this share of the pairs has the same sign: 7 of 8,
/// which occurs by chance in 7 of 100 runs (two-sided sign test).
const AGREEMENT: f64 = 0.875;

pub(crate) fn judge(findings: &Findings) -> Verdict {
    let p99 = |samples: &[Sample]| {
        summarize(samples, WINDOW, findings.slo)
            .p99
            .as_secs_f64()
            .max(1e-9)
    };
    let mut ratios: Vec<f64> = findings
        .windows
        .chunks_exact(2)
        .map(|pair| {
            let ratio = p99(&pair[0].samples) / p99(&pair[1].samples);
            if pair[0].arm == Arm::Kernel {
                ratio
            } else {
                1.0 / ratio
            }
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let sentence = sentence(&ratios, findings.cpus);
    let (kernel, albacore) = (arm(findings, Arm::Kernel), arm(findings, Arm::Albacore));
    Verdict {
        kernel,
        albacore,
        ratios,
        sentence,
    }
}

/// All samples of one arm as one run.
fn arm(findings: &Findings, arm: Arm) -> Summary {
    let windows: Vec<_> = findings.windows.iter().filter(|w| w.arm == arm).collect();
    let samples: Vec<Sample> = windows
        .iter()
        .flat_map(|w| w.samples.iter().copied())
        .collect();
    summarize(&samples, WINDOW * windows.len() as u32, findings.slo)
}

fn sentence(ratios: &[f64], cpus: usize) -> String {
    let (Some(low), Some(high)) = (
        ratios.get(ratios.len().saturating_sub(1) / 2),
        ratios.get(ratios.len() / 2),
    ) else {
        return "Nothing was measured.".into();
    };
    let median = (low * high).sqrt();
    let share = |count: usize| count as f64 / ratios.len() as f64;
    let better = share(ratios.iter().filter(|r| **r > 1.0).count());
    let worse = share(ratios.iter().filter(|r| **r < 1.0).count());
    let pairs = ratios.len();
    if better >= AGREEMENT && median > 1.02 {
        format!("Placed, p99 was {median:.2}x better (median of {pairs} pairs of windows).")
    } else if worse >= AGREEMENT && median < 0.98 {
        format!(
            "Placed, p99 was {:.2}x worse (median of {pairs} pairs): on this machine of {cpus} cpus \
             this load is better left to the kernel.",
            1.0 / median
        )
    } else {
        format!(
            "No gain can be claimed: the {pairs} pairs of windows disagree (median ratio \
             {median:.2}). With {cpus} cpus, shared by server and load generator, this machine is \
             too small or too noisy to tell."
        )
    }
}

/// Times from creation to verified mask, of all kills, sorted.
pub(crate) fn spawn_times(findings: &Findings) -> Vec<Duration> {
    let mut spawn_times: Vec<Duration> = findings
        .kills
        .iter()
        .flat_map(|kill| {
            kill.spawn_to_verified_us
                .iter()
                .map(|us| Duration::from_micros(*us))
        })
        .collect();
    spawn_times.sort_unstable();
    spawn_times
}

pub(crate) fn print(findings: &Findings) {
    let verdict = judge(findings);
    let slo_ms = findings.slo.as_millis();
    println!(
        "\n{:<10} {:>10} {:>10} {:>22}",
        "",
        "p50 ms",
        "p99 ms",
        format!("goodput/s (<= {slo_ms} ms)")
    );
    for (arm, s) in [
        (Arm::Kernel, verdict.kernel),
        (Arm::Albacore, verdict.albacore),
    ] {
        println!(
            "{:<10} {:>10.2} {:>10.2} {:>22.1}",
            arm.label(),
            ms(s.p50),
            ms(s.p99),
            s.goodput
        );
    }
    println!("{}", verdict.sentence);
    let spawn_times = spawn_times(findings);
    println!(
        "{} workers killed: {} threads respawned; creation to verified mask p50 {:.2} ms, p99 {:.2} ms. {}",
        findings.kills.len(),
        spawn_times.len(),
        ms(percentile(&spawn_times, 0.50)),
        ms(percentile(&spawn_times, 0.99)),
        requests_during_kills(&findings.during_kills),
    );
}

/// Outcomes of the requests that were sent while workers were killed.
pub(crate) fn requests_during_kills(during: &Report) -> String {
    let answered = during.good + during.late;
    let refused = during.shed + during.unavailable;
    let lost = during.failed + during.unanswered;
    format!(
        "Of {} requests meanwhile {answered} were answered, {refused} refused at once (429 or 503), {lost} failed or lost.",
        during.sent
    )
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_reported_as_answered_refused_or_lost() {
        let during = Report {
            sent: 21,
            good: 6,
            late: 5,
            shed: 4,
            unavailable: 3,
            failed: 2,
            unanswered: 1,
            ..Report::default()
        };
        let said = requests_during_kills(&during);
        assert!(said.starts_with("Of 21 requests"), "{said}");
        for part in ["11 were answered", "7 refused", "3 failed or lost"] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn only_agreeing_pairs_make_a_claim() {
        assert!(sentence(&[1.1, 1.3, 1.4, 1.5], 8).contains("1.35x better"));
        assert!(sentence(&[0.5, 0.6, 0.7, 0.8], 8).contains("1.54x worse"));
        for undecided in [
            &[0.9, 0.95, 1.1, 1.2][..],
            &[1.0, 1.0, 1.0, 1.0],
            &[1.001, 1.002, 1.01],
            // 6 of 8 agree: this occurs by chance in 29 of 100 runs.
            &[0.7, 0.7, 0.8, 0.9, 0.9, 0.9, 1.1, 2.0],
        ] {
            assert!(
                sentence(undecided, 2).contains("No gain can be claimed"),
                "{undecided:?}"
            );
        }
        assert_eq!(sentence(&[], 2), "Nothing was measured.");
    }
}
