//! Runs `albacore experiment`: interrupted, continued, and with its report opened in a browser.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Windows of the model that can be loaded: 2 x T, 2 trials, 4 policies and the kernel once more.
const WINDOWS: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// `albacore experiment`, with the programs that it starts built in the same directory.
fn albacore() -> Command {
    albacore_testbed::product_of("albacore-lab-commands", "albacore-lab").unwrap();
    for program in ["albacore-server", "albacore-params"] {
        albacore_testbed::product(program).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_albacore"));
    command.arg("experiment");
    command
}

/// Writes an experiment in which one model cannot be loaded by any server.
fn write_experiment(folder: &Path) -> PathBuf {
    let model = root().join("examples/fraud.ubj");
    let text = format!(
        "name: test\nworkers: [1]\nthreads: [1, 2]\npolicies: [kernel, round-robin, scatter, compact]\n\
         models:\n- {{name: fraud, file: {}, features: 61}}\n- {{name: bad, file: experiment.yaml, features: 2}}\n\
         requests: [{{rows: 2, output: contribs}}]\nload: {{clients: 1}}\ntrials: 2\nwindow: 100ms\nsettle: 20ms\n",
        model.display()
    );
    let file = folder.join("experiment.yaml");
    std::fs::write(&file, text).unwrap();
    file
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The window lines of the results.
fn windows(results: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(results.join("experiment.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &Value| line["kind"] == "window")
        .collect()
}

/// Runs until some windows are measured, then interrupts it like Ctrl-C.
fn interrupt(file: &Path, results: &Path) -> Output {
    let mut child = albacore()
        .arg("-f")
        .arg(file)
        .arg("--output")
        .arg(results)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    for line in lines.by_ref().map_while(Result::ok) {
        said += &format!("{line}\n");
        if line.starts_with("3/") {
            break;
        }
    }
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    said.extend(lines.map_while(Result::ok).map(|line| format!("{line}\n")));
    Output {
        status: child.wait().unwrap(),
        stdout: Vec::new(),
        stderr: said.into_bytes(),
    }
}

#[test]
fn an_experiment_goes_on_after_an_interrupt_and_its_report_opens_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let (file, results) = (
        write_experiment(folder.path()),
        folder.path().join("results"),
    );
    let interrupted = interrupt(&file, &results);
    let said = text(&interrupted.stderr);
    assert_eq!(interrupted.status.code(), Some(1), "{said}");
    assert!(said.contains("run the same command again"), "{said}");
    let before = windows(&results).len();
    assert!((3..WINDOWS).contains(&before), "{before}");

    let mut again = albacore();
    let again = again.arg("-f").arg(&file).arg("--output").arg(&results);
    let done = again.output().unwrap();
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains(&format!("{before} of")), "{said}");
    let windows = windows(&results);
    let id = |w: &Value| format!("{} {} {}", w["threads"], w["arm"], w["trial"]);
    let distinct: BTreeSet<String> = windows.iter().map(id).collect();
    assert_eq!(
        (windows.len(), distinct.len()),
        (WINDOWS, WINDOWS),
        "{said}"
    );
    assert!(windows.iter().all(|w| w["answered"].as_u64() > Some(0)));
    // the report names the model that cannot be loaded with the reason; the other models were
    // measured
    assert!(
        said.contains("bad 1 x 2: 10 windows are missing: "),
        "{said}"
    );
    assert!(said.contains("not a model file"), "{said}");
    let conclusions = text(&done.stdout);
    assert!(
        conclusions.contains("Compact beats Scatter"),
        "{conclusions}"
    );

    let report = results.join("report.html");
    let first = std::fs::read(&report).unwrap();
    std::fs::remove_file(&report).unwrap();
    let status = albacore().arg("report").arg(&results).status().unwrap();
    assert!(status.success());
    assert_eq!(std::fs::read(&report).unwrap(), first, "the same bytes");
    let html = text(&first);
    for outside in ["http://", "https://", "<script", "@import"] {
        let own = html.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !own.contains(outside),
            "{outside} in a report that is one file"
        );
    }
    for is_dark in [false, true] {
        let shown = show(&report, is_dark);
        let figures: Value = serde_json::from_str(&shown).unwrap_or_else(|_| panic!("{shown}"));
        assert_eq!(figures["title"], "Experiment test");
        assert!(figures["charts"].as_u64() >= Some(4), "{figures}");
        assert_eq!(figures["empty"], 0, "charts without a size: {figures}");
        assert_eq!(figures["overflows"], false, "{figures}");
        assert_eq!(figures["isDark"], is_dark, "{figures}");
    }
}

/// The rendering of a page by a browser, as JSON computed by a second page that contains the first
/// one in a frame.
fn show(page: &Path, is_dark: bool) -> String {
    let installed = Command::new(root().join("scripts/setup.sh"))
        .arg("browser")
        .status()
        .unwrap();
    assert!(installed.success(), "scripts/setup.sh browser");
    let folder = tempfile::tempdir().unwrap();
    let looker = folder.path().join("look.html");
    std::fs::write(
        &looker,
        format!(
            "<!doctype html><meta charset=utf-8><iframe id=f style='width:1000px;height:800px' src='file://{}'></iframe>\
             <pre id=out></pre><script>document.getElementById('f').onload=e=>{{\
             const d=e.target.contentDocument,s=[...d.querySelectorAll('svg')].map(x=>x.getBoundingClientRect()),\
             c=getComputedStyle(d.body).backgroundColor.match(/[0-9]+/g).map(Number);\
             document.getElementById('out').textContent=JSON.stringify({{title:d.title,charts:s.length,\
             empty:s.filter(r=>r.width<100||r.height<100).length,\
             overflows:d.documentElement.scrollWidth>d.documentElement.clientWidth,isDark:c[0]<100}})}}</script>",
            page.display()
        ),
    )
    .unwrap();
    let scheme = if is_dark { 0 } else { 1 };
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
        ])
        .args(["--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync"])
        .args([
            "--allow-file-access-from-files",
            "--virtual-time-budget=10000",
        ])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg("--dump-dom")
        .arg(format!("file://{}", looker.display()))
        .output()
        .unwrap();
    let dom = text(&output.stdout);
    let found = dom
        .split_once("<pre id=\"out\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let (json, _) = found.unwrap_or_else(|| panic!("{dom}\n{}", text(&output.stderr)));
    json.replace("&amp;", "&")
}
