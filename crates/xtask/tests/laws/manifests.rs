//! The permission matrix: the crates that each crate may link, checked against every Cargo.toml and
//! the whole dependency graph. The matrix documents the security model; these tests enforce it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

use crate::tree::{Violation, assert_kept, crate_of, crate_paths, root};

/// What a crate can do through a dependency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Permission {
    /// Connect to an API server.
    KubeClient,
    /// Use the types of Kubernetes objects.
    KubeTypes,
    /// Use an async runtime or an HTTP stack.
    Async,
    /// Make system calls.
    Kernel,
    /// Use gRPC and its messages.
    Grpc,
    /// Use the integer programming solver.
    Solver,
    /// Use randomness.
    Random,
    /// Parse a command line.
    CommandLine,
}

use Permission::{Async, CommandLine, Grpc, Kernel, KubeClient, KubeTypes, Random, Solver};

/// Packages that provide a permission; a trailing `*` is a wildcard.
const CARRIERS: [(&str, Permission); 20] = [
    ("kube-client", KubeClient),
    ("kube-runtime", KubeClient),
    ("kube", KubeTypes),
    ("kube-core", KubeTypes),
    ("k8s-openapi", KubeTypes),
    ("tokio*", Async),
    ("hyper*", Async),
    ("axum*", Async),
    ("tower*", Async),
    ("futures*", Async),
    ("nix", Kernel),
    ("libc", Kernel),
    ("rustix", Kernel),
    ("tonic*", Grpc),
    ("prost*", Grpc),
    ("good_lp", Solver),
    ("rand*", Random),
    ("fastrand", Random),
    ("getrandom", Random),
    ("clap", CommandLine),
];

/// A crate, the permissions of its direct dependencies, and the workspace crates that it may depend
/// on.
struct Row {
    krate: &'static str,
    may: &'static [Permission],
    knows: &'static [&'static str],
}

const fn row(
    krate: &'static str,
    may: &'static [Permission],
    knows: &'static [&'static str],
) -> Row {
    Row { krate, may, knows }
}

/// The matrix of ARCHITECTURE.md. Everything not listed is forbidden.
const MATRIX: &[Row] = &[
    row("values", &[], &[]),
    row("statistics", &[], &[]),
    row("topology", &[], &[]),
    row("mapping", &[], &["topology", "values"]),
    row("solver", &[Solver], &["mapping", "topology", "values"]),
    row("plan", &[], &["solver", "topology", "values"]),
    row("trial", &[], &["plan", "solver", "statistics", "values"]),
    row("batching", &[], &["values"]),
    row("svg", &[], &[]),
    row("random", &[], &[]),
    row(
        "simulator",
        &[],
        &["batching", "random", "settings", "svg", "values"],
    ),
    row("formats", &[], &[]),
    row("simd", &[], &[]),
    row("trees", &[], &["formats", "simd"]),
    row("settings", &[], &["batching"]),
    row("storage", &[Async], &["settings"]),
    row(
        "api",
        &[KubeTypes],
        &["plan", "settings", "solver", "trial"],
    ),
    row("proto", &[Grpc], &[]),
    row("os", &[Kernel], &["topology", "values"]),
    row(
        "placer",
        &[],
        &["os", "plan", "solver", "topology", "trial", "values"],
    ),
    row("program", &[Async, CommandLine], &[]),
    row("cluster", &[KubeClient, KubeTypes, Async], &["program"]),
    row(
        "controller",
        &[KubeTypes, Async, CommandLine],
        &[
            "api", "batching", "cluster", "program", "settings", "values",
        ],
    ),
    row(
        "agent",
        &[KubeTypes, Async, CommandLine],
        &[
            "api", "cluster", "os", "placer", "plan", "program", "settings", "topology", "trial",
            "values",
        ],
    ),
    row(
        "params",
        &[Async, Grpc, CommandLine],
        &["program", "proto", "settings"],
    ),
    row("call-counts", &[], &["engine", "proto"]),
    row("extensions", &[], &["engine", "os", "proto", "rows"]),
    row("rows", &[], &["engine", "proto"]),
    row("connections", &[Async], &["os"]),
    row("supervision", &[], &["os"]),
    row("worker", &[], &["os", "trees"]),
    row(
        "engine",
        &[Async],
        &["batching", "os", "supervision", "trees", "values", "worker"],
    ),
    row(
        "live-settings",
        &[Async],
        &[
            "engine",
            "os",
            "proto",
            "settings",
            "storage",
            "supervision",
        ],
    ),
    row(
        "params-client",
        &[Async, Grpc],
        &["live-settings", "proto", "settings"],
    ),
    row(
        "server-args",
        &[CommandLine],
        &[
            "batching",
            "engine",
            "live-settings",
            "params-client",
            "settings",
            "storage",
        ],
    ),
    row(
        "server",
        &[Async, Grpc],
        &[
            "batching",
            "call-counts",
            "connections",
            "engine",
            "extensions",
            "live-settings",
            "os",
            "params-client",
            "program",
            "proto",
            "rows",
            "server-args",
            "storage",
            "supervision",
            "values",
            "worker",
        ],
    ),
    row(
        "local",
        &[],
        &[
            "api", "command", "os", "placer", "plan", "settings", "solver", "topology", "trial",
        ],
    ),
    row("partition", &[Solver], &["random"]),
    row("oracles", &[Solver], &["solver", "topology"]),
    row("command", &[CommandLine], &["values"]),
    row(
        "lab-commands",
        &[CommandLine],
        &[
            "batching",
            "bench",
            "command",
            "experiment",
            "load",
            "oracles",
            "partition",
            "random",
            "routing-bench",
            "simulator",
            "solver",
            "svg",
            "topology",
            "trees",
            "tune",
            "values",
        ],
    ),
    row(
        "forecast",
        &[KubeTypes],
        &["api", "placer", "plan", "solver", "topology", "values"],
    ),
    row(
        "laboratory-job",
        &[KubeTypes, Async],
        &["api", "cluster", "command", "statistics"],
    ),
    row(
        "cli",
        &[KubeTypes, Async, CommandLine],
        &[
            "api",
            "cluster",
            "command",
            "laboratory-job",
            "forecast",
            "local",
            "os",
            "plan",
            "solver",
            "svg",
            "topology",
            "trees",
        ],
    ),
    row("load", &[Async], &["os", "random"]),
    row("live-bench", &[], &["load", "os", "simulator"]),
    row(
        "experiment",
        &[],
        &[
            "live-bench",
            "load",
            "os",
            "random",
            "simulator",
            "statistics",
            "svg",
            "values",
        ],
    ),
    row(
        "tune",
        &[],
        &[
            "api",
            "batching",
            "bench",
            "experiment",
            "live-bench",
            "os",
            "random",
            "simulator",
            "solver",
            "statistics",
            "svg",
            "topology",
            "values",
        ],
    ),
    row(
        "bench",
        &[],
        &[
            "batching",
            "command",
            "load",
            "random",
            "simulator",
            "statistics",
        ],
    ),
    row(
        "routing-bench",
        &[],
        &[
            "batching",
            "bench",
            "command",
            "load",
            "os",
            "random",
            "simulator",
            "statistics",
        ],
    ),
];

/// Crates without restrictions; no product crate may link them.
const UNRESTRICTED: [&str; 2] = ["testbed", "xtask"];

/// The wings; each may link only the wings before it and itself.
const WINGS: [&str; 8] = [
    "ground",
    "placement",
    "models",
    "serving",
    "kubernetes",
    "cli",
    "lab",
    "xtask",
];

/// The first wing that is not linked by product crates.
const FIRST_UNSHIPPED: &str = "lab";

/// Packages that `crate` must not reach, directly or indirectly; a trailing `*` is a wildcard.
const NEVER_LINKS: [(&str, &[&str]); 16] = [
    ("server", &["kube*", "k8s-openapi"]),
    (
        "engine",
        &["kube*", "tonic*", "prost*", "hyper*", "rustls*", "ureq"],
    ),
    (
        "worker",
        &["kube*", "tokio*", "hyper*", "tonic*", "rustls*", "ureq"],
    ),
    ("storage", &["kube*", "reqwest", "aws-lc*", "openssl*"]),
    (
        "placer",
        &[
            "kube*",
            "k8s-openapi",
            "tonic*",
            "prost*",
            "tokio*",
            "hyper*",
        ],
    ),
    ("agent", &["tonic*", "prost*"]),
    ("controller", &["nix", "rustix"]),
    ("params", &["kube*", "k8s-openapi", "nix"]),
    (
        "api",
        &["kube-client", "kube-runtime", "tokio*", "hyper*", "nix"],
    ),
    ("topology", &["nix", "libc", "tokio*", "kube*", "rand*"]),
    ("plan", &["nix", "tokio*", "kube*"]),
    ("batching", &["nix", "libc", "tokio*", "kube*", "rand*"]),
    ("simulator", &["nix", "libc", "tokio*", "kube*", "rand*"]),
    ("formats", &["nix", "libc", "tokio*", "kube*", "rand*"]),
    ("simd", &["nix", "libc", "tokio*", "kube*", "rand*"]),
    ("trees", &["nix", "libc", "tokio*", "kube*", "rand*"]),
];

/// The output of `cargo metadata` for the workspace and, by default, for all of its dependencies.
fn metadata(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern
        .strip_suffix('*')
        .map_or(pattern == name, |start| name.starts_with(start))
}

/// Directory name of a workspace package.
fn folder(package: &str) -> Option<&str> {
    package.strip_prefix("albacore-")
}

/// A crate, one of its dependencies, and the requested features of that dependency.
type Direct = (String, String, Vec<String>);

/// Dependencies by package name.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Direct dependencies of every crate that are linked into shipped programs: (crate, dependency,
/// features).
fn direct() -> Vec<Direct> {
    let metadata = metadata(&["--no-deps"]);
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let krate = folder(package["name"].as_str().unwrap_or_default()).unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if dependency["kind"] != "dev" {
                let name = dependency["name"].as_str().unwrap_or_default().to_owned();
                let features = dependency["features"].as_array().into_iter().flatten();
                let features = features
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect();
                found.push((krate.to_owned(), name, features));
            }
        }
    }
    found
}

#[test]
fn every_crate_is_in_the_matrix() {
    let is_known =
        |krate: &str| MATRIX.iter().any(|row| row.krate == krate) || UNRESTRICTED.contains(&krate);
    let violations = crate_paths()
        .into_iter()
        .filter(|path| !is_known(crate_of(path)))
        .map(|path| {
            let what = "is not in MATRIX: say there and in ARCHITECTURE.md what it may link";
            Violation::of(path, what)
        });
    assert_kept(
        "A crate exists where the permission set changes (L3).",
        violations,
    );
}

fn forbidden_links(direct: Vec<Direct>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (krate, dependency, features) in direct {
        let Some(row) = MATRIX.iter().find(|row| row.krate == krate) else {
            continue;
        };
        let place = format!("{krate}/Cargo.toml");
        if let Some(ours) = folder(&dependency) {
            if !row.knows.contains(&ours) {
                let what =
                    format!("knows {dependency}, which the matrix forbids: convert at the caller");
                violations.push(Violation::of(&place, what));
            }
            continue;
        }
        let carries = |(pattern, permission): &(&str, Permission)| {
            matches(pattern, &dependency).then_some(*permission)
        };
        let mut needed: Vec<Permission> = CARRIERS.iter().filter_map(carries).collect();
        if dependency == "kube"
            && features
                .iter()
                .any(|f| ["client", "runtime"].contains(&f.as_str()))
        {
            needed.push(KubeClient);
        }
        for permission in needed.into_iter().filter(|p| !row.may.contains(p)) {
            let what = format!(
                "links {dependency} and so gets {permission:?}, which the matrix \
                                forbids: use the crate that has it"
            );
            violations.push(Violation::of(&place, what));
        }
    }
    violations
}

#[test]
fn crates_link_what_the_matrix_permits() {
    for (krate, dependency, feature, is_kept) in [
        ("server", "kube", "derive", false),
        ("server", "tonic", "", true),
        ("plan", "tokio", "", false),
        ("plan", "albacore-os", "", false),
        ("plan", "albacore-solver", "", true),
        ("api", "kube", "derive", true),
        ("api", "kube", "client", false),
        ("placer", "tonic-prost", "", false),
        ("xtask", "tokio", "", true),
    ] {
        let direct = (
            krate.to_owned(),
            dependency.to_owned(),
            vec![feature.to_owned()],
        );
        let sees = forbidden_links(vec![direct]).is_empty() == is_kept;
        assert!(
            sees,
            "the law is wrong about {krate} and {dependency} ({feature})"
        );
    }
    assert_kept(
        "Each crate links only what the permission matrix allows (L3).",
        forbidden_links(direct()),
    );
}

/// Permissions in the matrix that no dependency of the crate needs.
fn unused_rights(direct: &[Direct]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for row in MATRIX {
        let of_crate = || direct.iter().filter(|(krate, ..)| krate == row.krate);
        let uses = |permission: Permission| {
            of_crate().any(|(_, name, _)| {
                let mut carriers = CARRIERS.iter();
                carriers.any(|(pattern, carried)| *carried == permission && matches(pattern, name))
            })
        };
        let unused = row.may.iter().filter(|permission| !uses(**permission));
        let unused = unused.map(|permission| format!("{permission:?}"));
        let knows = |other: &str| of_crate().any(|(_, name, _)| folder(name) == Some(other));
        let unknown = row.knows.iter().filter(|other| !knows(other));
        for right in unused.chain(unknown.map(|other| (*other).to_owned())) {
            let what =
                format!("the matrix permits {right}, which the crate does not use: remove it");
            violations.push(Violation::of(row.krate, what));
        }
    }
    violations
}

#[test]
fn the_matrix_permits_only_what_crates_use() {
    let without_links = unused_rights(&[]);
    let is_seen = |krate: &str| without_links.iter().any(|v| v.location == krate);
    assert!(
        is_seen("server") && !is_seen("topology"),
        "the law sees unused rights"
    );
    assert_kept(
        "Each right of the permission matrix is used.",
        unused_rights(&direct()),
    );
}

/// Packages that connect or listen, which the agent must not link itself. `cluster` contains the
/// only client.
const AGENT_NEVER: [&str; 12] = [
    "hyper*", "reqwest", "ureq", "axum*", "tower*", "futures*", "tonic*", "h2", "mio", "socket2",
    "nix", "kube*",
];

/// Features of workspace crates that would give the agent a listening socket.
const SOCKETS: [(&str, &str); 2] = [
    ("albacore-program", "listener"),
    ("albacore-cluster", "listener"),
];

fn sockets_of_the_agent(direct: Vec<Direct>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let of_agent = direct.into_iter().filter(|(krate, ..)| krate == "agent");
    for (_, dependency, features) in of_agent {
        let is_socket = |(package, feature): &(&str, &str)| {
            *package == dependency && features.iter().any(|asked| asked == feature)
        };
        let mut never = AGENT_NEVER.iter();
        if never.any(|pattern| matches(pattern, &dependency)) || SOCKETS.iter().any(is_socket) {
            let what = format!(
                "links {dependency} {features:?}: the agent connects to the API server alone, \
                 through albacore-cluster"
            );
            violations.push(Violation::of("crates/kubernetes/agent/Cargo.toml", what));
        }
    }
    violations
}

#[test]
fn the_agent_links_no_client_but_that_of_the_api_server() {
    for (krate, dependency, feature, is_kept) in [
        ("agent", "hyper-util", "client", false),
        ("agent", "ureq", "", false),
        ("agent", "socket2", "", false),
        ("agent", "albacore-program", "listener", false),
        ("agent", "albacore-program", "", true),
        ("agent", "albacore-cluster", "", true),
        ("agent", "tokio", "rt", true),
        ("controller", "hyper", "client", true),
    ] {
        let features = vec![feature.to_owned()];
        let direct = (krate.to_owned(), dependency.to_owned(), features);
        let sees = sockets_of_the_agent(vec![direct]).is_empty() == is_kept;
        assert!(sees, "the law is wrong about {krate} and {dependency}");
    }
    assert_kept(
        "The agent connects to the API server and to nothing else.",
        sockets_of_the_agent(direct()),
    );
}

/// Index in [`WINGS`] of the wing of a crate, given by its directory.
fn wing_of(path: &str) -> Option<usize> {
    let wing = path.strip_prefix("crates/")?.split('/').next()?;
    WINGS.iter().position(|name| *name == wing)
}

/// Dependencies of a wing on a later one; `paths` are the directories of all crates.
fn links_upward(paths: &[String], direct: &[Direct]) -> Vec<Violation> {
    let path = |krate: &str| paths.iter().find(|path| crate_of(path) == krate);
    let violations = direct.iter().filter_map(|(krate, dependency, _)| {
        let (from, to) = (path(krate)?, path(folder(dependency)?)?);
        let (own, other) = (wing_of(from)?, wing_of(to)?);
        let is_laboratory = WINGS[other] == FIRST_UNSHIPPED;
        let what = match is_laboratory {
            true => format!("links {dependency} of the laboratory: use it in tests only"),
            false => format!(
                "links {dependency} of the wing {}, which comes after its own: move the shared \
                 type to an earlier wing",
                WINGS[other]
            ),
        };
        (other > own).then(|| Violation::of(format!("{from}/Cargo.toml"), what))
    });
    violations.collect()
}

#[test]
fn no_wing_links_a_later_one_and_no_product_crate_the_laboratory() {
    let paths: Vec<String> = ["crates/ground/a", "crates/serving/b", "crates/lab/c"]
        .map(str::to_owned)
        .into();
    let link = |from: &str, to: &str| (from.to_owned(), format!("albacore-{to}"), Vec::new());
    for (from, to, is_kept) in [
        ("b", "a", true),
        ("c", "b", true),
        ("a", "b", false),
        ("b", "c", false),
    ] {
        let found = links_upward(&paths, &[link(from, to)]);
        assert_eq!(
            found.is_empty(),
            is_kept,
            "the law is wrong about {from} -> {to}"
        );
    }
    let paths = crate_paths();
    let unknown = paths.iter().filter(|path| wing_of(path).is_none());
    let unknown = unknown.map(|path| Violation::of(path, "is in no wing of WINGS"));
    assert_kept(
        "Wings link earlier wings alone; product crates never link the laboratory.",
        links_upward(&paths, &direct()).into_iter().chain(unknown),
    );
}

#[test]
fn every_wing_has_a_short_readme() {
    let wings = WINGS.iter().filter(|wing| **wing != "xtask");
    let violations = wings.filter_map(|wing| {
        let path = format!("crates/{wing}/README.md");
        let lines = crate::tree::text_of(&path, "it says what lives there and where to start");
        let lines = lines.lines().count();
        let what = format!("{lines} lines, at most 30: move what is more to docs/");
        (lines > 30).then(|| Violation::of(path, what))
    });
    assert_kept("A wing explains itself in at most 30 lines.", violations);
}

/// The dependency graph resolved by cargo for this machine and for the images, which use musl.
static RESOLVED: LazyLock<Value> = LazyLock::new(|| {
    let version = Command::new("rustc").arg("-vV").output();
    let version = version.expect("rustc runs").stdout;
    let version = String::from_utf8_lossy(&version).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.expect("a host triple");
    let image = host.replace("-gnu", "-musl");
    metadata(&["--filter-platform", host, "--filter-platform", &image])
});

/// Edges of the resolved graph on this platform by package name, without dev-dependencies. Versions
/// of a package are not distinguished.
fn graph() -> Graph {
    let metadata = &*RESOLVED;
    let name_of = |id: &Value| -> String {
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let package = packages.into_iter().find(|package| package["id"] == *id);
        package
            .and_then(|p| p["name"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let mut graph = Graph::new();
    for node in metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let edges = graph.entry(name_of(&node["id"])).or_default();
        for edge in node["deps"].as_array().into_iter().flatten() {
            let kinds = edge["dep_kinds"].as_array().into_iter().flatten();
            // Build scripts run on the builder and are not linked.
            if kinds.into_iter().any(|kind| kind["kind"].is_null()) {
                edges.insert(name_of(&edge["pkg"]));
            }
        }
    }
    graph
}

fn breaches(graph: &Graph) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (krate, banned) in NEVER_LINKS {
        let start = format!("albacore-{krate}");
        let mut from = BTreeMap::from([(start.clone(), String::new())]);
        let mut open = vec![start];
        while let Some(package) = open.pop() {
            for next in graph.get(&package).into_iter().flatten() {
                if !from.contains_key(next) {
                    from.insert(next.clone(), package.clone());
                    open.push(next.clone());
                }
            }
        }
        for package in from
            .keys()
            .filter(|p| banned.iter().any(|pattern| matches(pattern, p)))
        {
            let mut way = vec![package.as_str()];
            while let Some(before) = from
                .get(*way.last().unwrap_or(&""))
                .filter(|b| !b.is_empty())
            {
                way.push(before);
            }
            way.reverse();
            let what = format!("links {package} ({})", way.join(" -> "));
            violations.push(Violation::of(krate, what));
        }
    }
    violations
}

#[test]
fn crate_boundaries_hold_for_transitive_dependencies() {
    let link = |from: &str, to: &str| (from.to_owned(), BTreeSet::from([to.to_owned()]));
    let breached = Graph::from([link("albacore-server", "x"), link("x", "kube-core")]);
    let seen: Vec<String> = breaches(&breached).into_iter().map(|o| o.what).collect();
    assert_eq!(
        seen,
        ["links kube-core (albacore-server -> x -> kube-core)"]
    );
    let graph = graph();
    assert!(graph["albacore-api"].contains("kube"), "the graph is read");
    assert_kept(
        "The server never links Kubernetes, the placer no gRPC, the controller no nix.",
        breaches(&graph),
    );
}

#[test]
fn packages_are_named_after_their_folder_and_take_the_lints_of_the_workspace() {
    let mut violations = Vec::new();
    for folder in crate_paths() {
        let path = format!("{folder}/Cargo.toml");
        let krate = crate_of(&folder);
        let text = crate::tree::text_of(&path, "it was just listed");
        if !text.contains(&format!("name = \"albacore-{krate}\"")) {
            violations.push(Violation::of(
                &path,
                format!("name the package albacore-{krate}"),
            ));
        }
        if !text.contains("[lints]\nworkspace = true") {
            violations.push(Violation::of(
                &path,
                "add `[lints]` with `workspace = true`",
            ));
        }
    }
    assert_kept("Packages follow the rules of the workspace.", violations);
}
