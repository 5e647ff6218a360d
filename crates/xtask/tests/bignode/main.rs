//! Tests on a machine unlike the local one: 8 CPUs with SMT, 2 NUMA nodes, cgroup v2, and a kernel
//! (6.1) that forgets a thread's pin when its cpuset widens. This program boots the machine with
//! itself as init process, and is also the test in it. In `make e2e` the machine is also a node
//! with a kubelet and the release. `make bignode` adds a machine with 32 CPUs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod distances;
mod guest;
#[path = "../node/kernel.rs"]
#[allow(dead_code, reason = "reads the machine at hand; the rig knows it")]
mod kernel;
mod many;
mod memory;
mod release;
mod resized;
#[path = "../node/rig.rs"]
#[allow(dead_code, reason = "some of it is for nodes on the machine at hand")]
mod rig;
mod threads;

use std::path::{Path, PathBuf};
use std::time::Instant;

use albacore_testbed::{Guest, Size, product, product_of};

/// Printed by the guest on success.
const DONE: &str = "all steps passed";

#[test]
fn a_big_node_with_cgroup_v2_keeps_its_placement() {
    if std::process::id() == 1 {
        guest::run_steps();
        return;
    }
    let start = Instant::now();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let tool = |name: &str| {
        let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        let found = folders
            .into_iter()
            .map(|f| f.join(name))
            .find(|path| path.is_file());
        (
            format!("/bin/{name}"),
            found.unwrap_or_else(|| panic!("{name} is missing")),
        )
    };
    let guest = Guest {
        init: std::env::current_exe().unwrap(),
        arguments: ["--nocapture", "--test-threads=1"].map(String::from).into(),
        programs: vec![
            (
                "/albacore".into(),
                product_of("albacore-cli", "albacore").unwrap(),
            ),
            (
                "/albacore-server".into(),
                product("albacore-server").unwrap(),
            ),
            (
                "/albacore-params".into(),
                product("albacore-params").unwrap(),
            ),
            tool("mount"),
            tool("ip"),
        ],
        files: vec![
            ("/fraud.yaml".into(), root.join("examples/fraud.yaml")),
            ("/fraud.ubj".into(), root.join("examples/fraud.ubj")),
        ],
        ..Guest::default()
    };
    println!("{:6.2} s: programs", start.elapsed().as_secs_f64());
    let mut sizes = vec![Size::Eight];
    if std::env::var_os("ALBACORE_SOAK").is_some() {
        sizes.push(Size::ThirtyTwo);
    }
    for size in sizes {
        let guest = Guest {
            size,
            ..guest.clone()
        };
        let console = Guest::run(&guest).unwrap();
        println!("{console}");
        println!("{:6.2} s: guest", start.elapsed().as_secs_f64());
        assert!(
            console.contains(DONE),
            "a step in the guest failed, see above"
        );
    }
    if std::env::var_os(rig::MADE).is_some() {
        release::run_steps();
    }
}
