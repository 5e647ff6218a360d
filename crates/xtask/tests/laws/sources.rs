//! Laws on source code: I/O in the pure crates, unsafe code, bounds of loops, infallible code.

use crate::tree::{Source, Violation, assert_kept, sources};

/// Crates that do no I/O and take all input as values.
const PURE: [&str; 12] = [
    "topology",
    "mapping",
    "solver",
    "plan",
    "batching",
    "simulator",
    "partition",
    "formats",
    "simd",
    "trees",
    "api",
    "settings",
];

/// Names that a pure crate must not use, and the alternative.
const IMPURE: [(&str, &str); 12] = [
    ("fs", "take the text or bytes as an argument"),
    ("env", "take the value as an argument"),
    ("net", "only server, cli and load talk to a network"),
    ("process", "only os and placer see processes"),
    ("thread", "threads belong to the caller"),
    ("Instant", "take the time as an argument"),
    ("SystemTime", "take the time as an argument"),
    ("rand", "take the seed as an argument"),
    ("tokio", "async belongs to the caller"),
    ("async", "async belongs to the caller"),
    ("thread_local", "take the state as an argument"),
    ("println", "return what is to be printed"),
];

/// Words of a line of code.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// Lines of code outside tests, with their index.
fn product(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.code.iter().map(String::as_str).enumerate();
    lines.filter(|&(index, _)| !source.is_test[index])
}

/// Whether a comment on the line or on one of the `above` lines before it contains `mark`.
fn is_explained(source: &Source, index: usize, mark: &str, above: usize) -> bool {
    source.lines[index.saturating_sub(above)..=index]
        .iter()
        .any(|line| line.contains(mark))
}

/// Whether a line of code uses a name of `IMPURE`: a module of std, a macro, a keyword.
fn uses_impure(line: &str, name: &str) -> bool {
    let is_std_module = matches!(name, "fs" | "env" | "net" | "process" | "thread");
    match name {
        "println" => words(line).any(|w| matches!(w, "println" | "eprintln" | "print" | "eprint")),
        "rand" => line.contains("rand::"),
        "env" if line.contains("env!(") => false,
        _ if is_std_module => {
            let is_import = line.trim_start().starts_with("use std::{");
            line.contains(&format!("std::{name}")) || is_import && words(line).any(|w| w == name)
        }
        _ => words(line).any(|word| word == name),
    }
}

fn impure_uses(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources.iter().filter(|s| PURE.contains(&s.krate.as_str())) {
        for (index, line) in product(source) {
            for (name, way_out) in IMPURE.iter().filter(|(name, _)| uses_impure(line, name)) {
                violations.push(Violation::at(source, index, format!("`{name}`: {way_out}")));
            }
        }
    }
    violations
}

/// The only place outside `os` that may contain unsafe code: SIMD kernels.
const SIMD: &str = "crates/models/simd/src";

fn misplaced_or_unjustified_unsafe(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        let may = source.krate == "os" || source.path.starts_with(SIMD);
        for (index, line) in source.code.iter().enumerate() {
            let is_unsafe = words(line).any(|word| word == "unsafe");
            if !is_unsafe {
                continue;
            }
            if !may {
                violations.push(Violation::at(
                    source,
                    index,
                    "unsafe code: move it into crates/ground/os",
                ));
            } else if !is_explained(source, index, "// SAFETY:", 6)
                && !is_explained(source, index, "# Safety", 12)
            {
                violations.push(Violation::at(
                    source,
                    index,
                    "write `// SAFETY:` above: why it is sound",
                ));
            }
        }
    }
    violations
}

fn crates_without_forbid_unsafe(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        let is_root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
        let has_simd = source.krate == "simd" && sources.iter().any(|s| s.path.starts_with(SIMD));
        let forbids = source
            .lines
            .iter()
            .any(|l| l.trim() == "#![forbid(unsafe_code)]");
        if is_root && source.krate != "os" && !has_simd && !forbids {
            violations.push(Violation::of(
                &source.path,
                "add `#![forbid(unsafe_code)]` after its head",
            ));
        }
    }
    violations
}

fn loops_without_bound(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        for (index, line) in product(source) {
            let is_open = line.contains("loop {") || line.contains("while true");
            let below = (index + 1).min(source.lines.len() - 1);
            if is_open
                && !is_explained(source, index, "// bound:", 3)
                && !is_explained(source, below, "// bound:", 0)
            {
                let what = "`loop`: write `// bound:` above it: what ends it, and after how much";
                violations.push(Violation::at(source, index, what));
            }
        }
    }
    violations
}

fn queues_without_bound(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        for (index, line) in product(source) {
            if line.contains("unbounded") && words(line).any(|w| w.contains("unbounded")) {
                let what = "an unbounded queue: give it a bound from limits.rs";
                violations.push(Violation::at(source, index, what));
            }
            if line.contains("mpsc::channel()") {
                let what = "std's channel() is unbounded: use sync_channel with a bound";
                violations.push(Violation::at(source, index, what));
            }
        }
    }
    violations
}

fn unjustified_panics(sources: &[Source]) -> Vec<Violation> {
    let lints = [
        "clippy::expect_used",
        "clippy::unwrap_used",
        "clippy::panic",
    ];
    let mut violations = Vec::new();
    for source in sources {
        for (index, line) in product(source) {
            let allows = line.contains("allow(") || line.contains("expect(");
            if allows
                && lints.iter().any(|lint| line.contains(lint))
                && !is_explained(source, index, "// infallible:", 3)
            {
                let what =
                    "write `// infallible:` above it: why it cannot fail; or return an error";
                violations.push(Violation::at(source, index, what));
            }
        }
    }
    violations
}

fn unfinished_code(sources: &[Source]) -> Vec<Violation> {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    let calls = ["todo", "unimplemented", "dbg"];
    let mut violations = Vec::new();
    for source in sources {
        for (index, line) in source.lines.iter().enumerate() {
            let code = &source.code[index];
            if words(line).any(|word| marks.contains(&word)) {
                violations.push(Violation::at(
                    source,
                    index,
                    "do it, or say what is missing in the docs",
                ));
            }
            if calls.iter().any(|call| code.contains(&format!("{call}!("))) {
                violations.push(Violation::at(
                    source,
                    index,
                    "write the code that is missing",
                ));
            }
            if code.contains("#[ignore") {
                violations.push(Violation::at(
                    source,
                    index,
                    "a skipped test is a failed test (L13)",
                ));
            }
        }
    }
    violations
}

/// The crates of the agent, except the client of the API server.
const AGENT: [&str; 10] = [
    "agent", "placer", "os", "mapping", "solver", "plan", "topology", "api", "settings", "program",
];

/// The listener in `program`, a feature that the agent does not link.
const LISTENER: [&str; 2] = [
    "crates/ground/program/src/listener.rs",
    "crates/ground/program/src/monitoring.rs",
];

/// Names by which a program connects to a network or to another program's socket.
const CONNECTS: [&str; 12] = [
    "TcpStream",
    "TcpSocket",
    "UdpSocket",
    "UnixStream",
    "UnixDatagram",
    "ToSocketAddrs",
    "hyper",
    "hyper_util",
    "socket2",
    "Inet",
    "Inet6",
    "AF_INET",
];

fn foreign_connections_of_the_agent(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let is_of_agent = |source: &&Source| {
        AGENT.contains(&source.krate.as_str()) && !LISTENER.contains(&source.path.as_str())
    };
    for source in sources.iter().filter(is_of_agent) {
        for (index, line) in product(source) {
            let name = CONNECTS
                .iter()
                .find(|name| words(line).any(|w| w == **name));
            let name = name
                .copied()
                .or(line.contains("tokio::net").then_some("tokio::net"));
            // A function may have this name; only a method of a socket or a system call connects.
            let is_call = line.contains("socket::connect") || line.contains("libc::connect");
            if let Some(name) = name.or(is_call.then_some("connect")) {
                let what = format!(
                    "`{name}`: the process with SYS_NICE and the host's pids talks to the API server alone, \
                     through crates/kubernetes/cluster; what pods report comes \
                     through albacore-params"
                );
                violations.push(Violation::at(source, index, what));
            }
        }
    }
    violations
}

type Find = fn(&[Source]) -> Vec<Violation>;

/// Checks a law on samples (path and text) that violate and satisfy it, then on the repository.
#[track_caller]
fn check_law(law: &str, find: Find, breaks: &[(&str, &str)], keeps: &[(&str, &str)]) {
    let found = |&(path, text): &(&str, &str)| find(&[Source::parse(path.to_owned(), text)]);
    for sample in breaks {
        assert!(
            !found(sample).is_empty(),
            "{law}\nthe law does not see: {sample:?}"
        );
    }
    for sample in keeps {
        assert!(
            found(sample).is_empty(),
            "{law}\nthe law is wrong about: {sample:?}"
        );
    }
    assert_kept(law, find(&sources()));
}

const PLAN: &str = "crates/placement/plan/src/x.rs";
const OS: &str = "crates/ground/os/src/x.rs";

#[test]
fn planning_crates_do_no_io() {
    check_law(
        "Planning crates have no clock, files, network, threads, randomness or async (L2).",
        impure_uses,
        &[
            (PLAN, "let now = std::time::Instant::now();"),
            (PLAN, "use std::{fmt, fs};"),
            (PLAN, "std::fs::read(p)"),
            (PLAN, "async fn f() {}"),
            (PLAN, "println!(\"x\")"),
        ],
        &[
            (OS, "std::fs::read(p)"),
            (PLAN, "// std::fs is for os\nlet fs = \"std::fs\";"),
            (PLAN, "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n"),
            ("crates/placement/plan/tests/x.rs", "std::fs::read(p)"),
        ],
    );
}

#[test]
fn unsafe_code_is_confined_and_justified() {
    check_law(
        "Unsafe code is in os and simd alone, each with a SAFETY line (L8).",
        misplaced_or_unjustified_unsafe,
        &[
            (PLAN, "// SAFETY: no\nunsafe { f() }"),
            (OS, "unsafe { f() }"),
            ("crates/ground/os/tests/x.rs", "unsafe { f() }"),
        ],
        &[
            (OS, "// SAFETY: the pointer is ours.\nunsafe { f() }"),
            (OS, "/// # Safety\n/// x\npub unsafe fn f() {}"),
            (PLAN, "#![forbid(unsafe_code)]\n// unsafe\n"),
        ],
    );
}

#[test]
fn every_other_crate_forbids_unsafe_code() {
    check_law(
        "Every crate but os forbids unsafe code (L8).",
        crates_without_forbid_unsafe,
        &[
            ("crates/placement/plan/src/lib.rs", "mod x;"),
            ("crates/cli/cli/src/main.rs", "fn main() {}"),
        ],
        &[
            (
                "crates/placement/plan/src/lib.rs",
                "//! x\n#![forbid(unsafe_code)]\n",
            ),
            ("crates/ground/os/src/lib.rs", "mod x;"),
            (PLAN, ""),
        ],
    );
}

#[test]
fn every_loop_has_a_bound_comment() {
    check_law(
        "Every open loop says what bounds it (L5).",
        loops_without_bound,
        &[(PLAN, "loop {\n}"), (PLAN, "// forever\nwhile true {\n}")],
        &[
            (PLAN, "// bound: one turn a row\nloop {\n}"),
            (PLAN, "loop {\n    // bound: one turn a row\n}"),
            (PLAN, "// loop {"),
            ("crates/placement/plan/src/tests.rs", "loop {\n}"),
        ],
    );
}

#[test]
fn every_queue_is_bounded() {
    check_law(
        "Every queue has a bound (L5).",
        queues_without_bound,
        &[
            (OS, "let (a, b) = mpsc::unbounded_channel();"),
            (OS, "let (a, b) = mpsc::channel();"),
        ],
        &[
            (OS, "let (a, b) = mpsc::channel(QUEUE_MAX);"),
            (OS, "// unbounded"),
        ],
    );
}

#[test]
fn the_agent_connects_only_to_the_api_server() {
    let agent = "crates/kubernetes/agent/src/x.rs";
    check_law(
        "The agent connects to the API server and to nothing else.",
        foreign_connections_of_the_agent,
        &[
            (
                agent,
                "let stream = TcpStream::connect_timeout(&pod, TIME)?;",
            ),
            (agent, "use std::net::{IpAddr, UdpSocket};"),
            (agent, "let stream = tokio::net::lookup_host(pod).await?;"),
            (agent, "use hyper_util::client::legacy::Client;"),
            (OS, "nix::sys::socket::connect(fd, &address)?;"),
            (OS, "socket(AddressFamily::Inet, kind, flags, None)?"),
            (
                "crates/placement/placer/src/x.rs",
                "UnixStream::connect(path)?",
            ),
            (
                "crates/ground/program/src/x.rs",
                "TcpStream::connect(address)",
            ),
        ],
        &[
            (agent, "use std::net::IpAddr;"),
            (
                agent,
                "let cluster = Cluster::connect(&options, metrics).await?;",
            ),
            (agent, "// TcpStream::connect was here"),
            (
                agent,
                "#[cfg(test)]\nmod tests {\n    use std::net::TcpStream;\n}\n",
            ),
            (
                "crates/kubernetes/agent/tests/x.rs",
                "TcpStream::connect(address)",
            ),
            (LISTENER[0], "use tokio::net::{TcpListener, TcpSocket};"),
            (OS, "socket(AddressFamily::Netlink, kind, flags, None)?"),
            (
                "crates/kubernetes/controller/src/x.rs",
                "TcpStream::connect(address).await?",
            ),
        ],
    );
}

#[test]
fn allowed_panics_are_justified() {
    check_law(
        "No unwrap, expect or panic outside tests but with `// infallible:` (L7).",
        unjustified_panics,
        &[
            (OS, "#[allow(clippy::expect_used)]\nx.expect(\"y\")"),
            (OS, "#![allow(clippy::panic)]"),
        ],
        &[
            (
                OS,
                "// infallible: just pushed\n#[allow(clippy::expect_used)]\nx.expect(\"y\")",
            ),
            (OS, "#[allow(clippy::too_many_lines)]"),
        ],
    );
}

#[test]
fn no_code_is_unfinished_and_no_test_is_ignored() {
    check_law(
        "Nothing is left undone, no test is skipped (L13).",
        unfinished_code,
        &[
            (OS, concat!("// TO", "DO later")),
            (OS, "todo!()"),
            (OS, "#[test]\n#[ignore = \"slow\"]\nfn f() {}"),
        ],
        &[(OS, "let todo = \"todo!()\";")],
    );
}
