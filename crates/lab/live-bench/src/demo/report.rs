//! demo/report.html: one self-contained file without scripts or external resources.

use albacore_load::percentile;

use super::verdict::{judge, ms, requests_during_kills, spawn_times};
use super::{Findings, SEED, charts};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--dim:#66707f;--page:#fff;--line:#dfe3e9;--k:#2563eb;--a:#e0520d}\
@media(prefers-color-scheme:dark){:root{--ink:#e8ebf0;--dim:#98a2b3;--page:#14181f;--line:#2c333f}}\
body{font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:760px;margin:3rem auto;padding:0 1rem}\
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2.2rem}\
table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.35rem .6rem;border-bottom:1px solid var(--line)}\
th:first-child,td:first-child{text-align:left}.dim{color:var(--dim)}svg{width:100%;height:auto}\
.key{font-weight:600}.key.kernel{color:var(--k)}.key.albacore{color:var(--a)}";

pub(crate) fn html(findings: &Findings) -> String {
    let verdict = judge(findings);
    let spawn_times = spawn_times(findings);
    let row = |class: &str, s: &albacore_load::Summary| {
        format!(
            "<tr><td class='key {class}'>{class}</td><td>{:.2}</td><td>{:.2}</td><td>{:.1}</td>\
             <td>{}</td></tr>",
            ms(s.p50),
            ms(s.p99),
            s.goodput,
            s.sent
        )
    };
    let ratios: Vec<String> = verdict
        .ratios
        .iter()
        .map(|ratio| format!("{ratio:.2}"))
        .collect();
    let kills = kill_rows(findings);
    format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' \
         content='width=device-width,initial-scale=1'><title>Albacore demo</title>\
         <style>{STYLE}</style><h1>Albacore on this machine</h1>\
         <p class='dim'>{} cpus. examples/fraud.yaml: 2 workers of 2 threads. Open-loop load of \
         {:.0} requests/s, {} rows with SHAP each, seed {SEED}; latency from the intended send \
         time.</p><p><b>{}</b></p>\
         <table><tr><th>placement</th><th>p50 ms</th><th>p99 ms</th><th>goodput/s within {} ms\
         </th><th>requests</th></tr>{}{}</table>\
         <p class='dim'>p99 of the kernel's windows over Albacore's, pair by pair: {}.</p>\
         <h2>Latency</h2>{}\
         <h2>Workers killed under the same load</h2><p>From the creation of a thread to its verified \
         mask: p50 {:.2} ms, p99 {:.2} ms over {} threads. {}</p><table><tr><th>kill</th><th>worker</th><th>threads</th><th>slowest, ms</th>\
         </tr>{kills}</table><h2>The plan</h2>{}</html>\n",
        findings.cpus,
        findings.rate,
        findings.rows_per_request,
        verdict.sentence,
        findings.slo.as_millis(),
        row("kernel", &verdict.kernel),
        row("albacore", &verdict.albacore),
        ratios.join(", "),
        charts::svg(findings),
        ms(percentile(&spawn_times, 0.50)),
        ms(percentile(&spawn_times, 0.99)),
        spawn_times.len(),
        requests_during_kills(&findings.during_kills),
        findings.plan_svg,
    )
}

fn kill_rows(findings: &Findings) -> String {
    findings
        .kills
        .iter()
        .enumerate()
        .map(|(i, kill)| {
            let worst = kill
                .spawn_to_verified_us
                .iter()
                .max()
                .copied()
                .unwrap_or_default();
            let threads = kill.spawn_to_verified_us.len();
            format!(
                "<tr><td>{}</td><td>{}</td><td>{threads}</td><td>{:.2}</td></tr>",
                i + 1,
                kill.worker,
                worst as f64 / 1e3
            )
        })
        .collect()
}
