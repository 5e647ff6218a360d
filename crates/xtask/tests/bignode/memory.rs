//! NUMA placement of the workers' memory on two NUMA nodes: this test pins the workers, like a
//! placer, and reads the nodes of their pages from the guest's kernel.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Child;

use albacore_os::{Tid, write_mask};

use crate::guest::{LONG, serve, stop_placer, wait_until};

/// Workers, and threads per worker, in examples/fraud.yaml.
const WORKERS: usize = 2;
const THREADS: usize = 2;

/// Most private pages that exist since the start, of heaps and of stacks: about 90. Including the
/// pages that a worker allocates for SHAP values they are 190 to 280.
const EARLY_PAGES_MAX: u64 = 140;

/// Least number of pages that a worker allocates for SHAP values.
const SCRATCH_PAGES_MIN: u64 = 64;

/// CPUs per NUMA node.
const NODE_CPUS: usize = 4;

const HUGE_PAGE_BYTES: f64 = 2_097_152.0;

/// Large enough that SHAP values of some rows are most of a worker's private memory.
const FEATURES: usize = 512;
const ROWS: usize = 128;

/// The image occupies two huge pages.
const TREES: usize = 4_000;

/// Pins each worker to its own NUMA node, and then to the other one.
pub(crate) fn memory_is_local(container: &Path) {
    let huge = Path::new("/sys/kernel/mm/transparent_hugepage");
    fs::write(huge.join("shmem_enabled"), "advise").unwrap();
    // A huge page may contain both early and new data, so only images may use them here.
    fs::write(huge.join("enabled"), "never").unwrap();
    // Automatic NUMA balancing would eventually move the pages.
    fs::write("/proc/sys/kernel/numa_balancing", "0").unwrap();
    fs::write("/large.txt", large_model()).unwrap();
    let file = fs::read_to_string("/fraud.yaml").unwrap();
    let file = file.replace("./fraud.ubj", "./large.txt");
    // An emulated CPU is too slow for the objective: requests would be rejected.
    let file = file.replace("    slo: {latency: 25ms, percentile: 99}\n", "");
    assert!(!file.contains("slo"), "{file}");
    let file = format!("{file}  placement: {{enforcement: Observe}}\n");
    fs::write("/near.yaml", file).unwrap();
    let mut server: Child = serve(container, "/near.yaml");
    wait_until("ready", 2 * LONG, || {
        get("/v2/health/ready").starts_with("HTTP/1.1 200")
    });
    for (round, nodes) in [[0, 1], [1, 0]].into_iter().enumerate() {
        let workers = workers(container);
        for (&pid, node) in workers.iter().zip(nodes) {
            pin(pid, node);
        }
        let moves = (WORKERS * (round + 1)) as f64;
        let has_moved = || {
            metric("albacore_worker_scratch_moves_total") == moves
                && metric("albacore_workers_far") == 0.0
        };
        let took = wait_until("sent to its node", LONG, has_moved);
        println!("sent to their nodes after {took:.1?}");
        let is_near = || {
            compute();
            let pages = workers.map(Pages::read);
            println!("{pages:?}");
            pages
                .iter()
                .zip(nodes)
                .all(|(pages, node)| pages.is_local_to(node))
        };
        wait_until("memory is near", 2 * LONG, is_near);
    }
    for line in get("/metrics").lines() {
        let shown = ["albacore_model_image", "albacore_worker_scratch"];
        if shown.iter().any(|name| line.starts_with(name)) {
            println!("{line}");
        }
    }
    let made = metric(r#"albacore_model_image_copies_total{result="made"}"#);
    assert_eq!(made, 1.0, "an image for each of two nodes");
    let image = metric(r#"albacore_model_image_bytes{model="fraud",node="0"}"#);
    let other = metric(r#"albacore_model_image_bytes{model="fraud",node="1"}"#);
    let huge = metric(r#"albacore_model_image_huge_bytes{model="fraud"}"#);
    let whole = (image / HUGE_PAGE_BYTES).floor() * HUGE_PAGE_BYTES;
    assert_eq!((other, huge), (image, 2.0 * whole), "both in huge pages");
    assert!(whole > 0.0);
    stop_placer(&mut server);
}

/// A LightGBM file whose image occupies some huge pages.
fn large_model() -> String {
    let mut text = format!(
        "tree\nversion=v4\nnum_tree_per_iteration=1\nmax_feature_idx={}\n\n",
        FEATURES - 1
    );
    for tree in 0..TREES {
        let of = |nth: usize| (7 * tree + 13 * nth) % FEATURES;
        let features: Vec<String> = (0..7).map(|nth| of(nth).to_string()).collect();
        write!(
            text,
            "Tree={tree}\nnum_leaves=8\nsplit_feature={}\nthreshold=0.5 0.1 0.9 0.3 0.7 0.2 0.8\n\
             decision_type=10 10 10 10 10 10 10\nleft_child=1 3 5 -1 -3 -5 -7\n\
             right_child=2 4 6 -2 -4 -6 -8\nleaf_value=1 2 3 4 5 6 7 8\n\
             leaf_count=1 1 1 1 1 1 1 1\ninternal_count=8 4 4 2 2 2 2\n\n",
            features.join(" ")
        )
        .unwrap();
    }
    text + "end of trees\n"
}

/// The server's reply to a request.
fn ask(head: &str, body: &str) -> String {
    let Ok(mut stream) = TcpStream::connect("127.0.0.1:8080") else {
        return String::new();
    };
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: guest\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

fn get(path: &str) -> String {
    ask(&format!("GET {path}"), "")
}

fn metric(name: &str) -> f64 {
    let text = get("/metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.unwrap_or_else(|| panic!("{name} is missing: {text}"));
    value.trim().parse().unwrap()
}

/// Makes both workers compute SHAP values with all of their threads.
fn compute() {
    let mut data = String::new();
    for value in 0..ROWS * FEATURES {
        write!(data, "{}{}", if value > 0 { "," } else { "" }, value % 10).unwrap();
    }
    let body = format!(
        r#"{{"inputs":[{{"name":"input","datatype":"FP32","shape":[{ROWS},{FEATURES}],"data":[{data}]}}],
           "outputs":[{{"name":"contribs"}}]}}"#
    );
    std::thread::scope(|scope| {
        for _ in 0..2 * WORKERS {
            scope.spawn(|| {
                let reply = ask("POST /v2/models/fraud/infer", &body);
                assert!(reply.starts_with("HTTP/1.1 200"), "{reply:.500}");
            });
        }
    });
}

/// The pids of the workers, by index.
fn workers(container: &Path) -> [i32; WORKERS] {
    let pids = fs::read_to_string(container.join("cgroup.procs")).unwrap();
    std::array::from_fn(|worker| {
        let name = format!("albw{worker}.0\n");
        let is_it = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == name)
        };
        pids.lines().find(is_it).unwrap().parse().unwrap()
    })
}

/// Pins each thread of a worker to a CPU of a NUMA node.
fn pin(worker: i32, node: usize) {
    let tasks = fs::read_dir(format!("/proc/{worker}/task")).unwrap();
    let tasks: Vec<_> = tasks.map(|task| task.unwrap().file_name()).collect();
    assert_eq!(tasks.len(), THREADS);
    for (rank, task) in tasks.iter().enumerate() {
        let tid = Tid(task.to_str().unwrap().parse().unwrap());
        let cpu = node * NODE_CPUS + 2 * rank;
        write_mask(tid, &cpu.to_string().parse().unwrap()).unwrap();
    }
}

/// Number of pages of a worker, by NUMA node.
#[derive(Debug, Default)]
struct Pages {
    image: [u64; 2],
    /// Heaps, separately mapped buffers, and stacks of threads other than the main thread.
    private: [u64; 2],
}

impl Pages {
    fn read(worker: i32) -> Self {
        let mut pages = Self::default();
        let text = fs::read_to_string(format!("/proc/{worker}/numa_maps")).unwrap();
        for line in text.lines() {
            let counts = match line {
                line if line.contains("albacore-model") => &mut pages.image,
                line if is_private(line) => &mut pages.private,
                _ => continue,
            };
            for (node, count) in counts.iter_mut().enumerate() {
                let key = format!("N{node}=");
                let own = line.split(' ').find_map(|word| word.strip_prefix(&key));
                *count += own.map_or(0, |own| own.parse::<u64>().unwrap());
            }
        }
        pages
    }

    /// Whether all pages of the image are on the node, and all private pages except those from the
    /// worker's start.
    fn is_local_to(&self, node: usize) -> bool {
        let far = 1 - node;
        let is_image_near = self.image[node] > 0 && self.image[far] == 0;
        let is_scratch_near = self.private[node] >= SCRATCH_PAGES_MIN;
        is_image_near && is_scratch_near && self.private[far] <= EARLY_PAGES_MAX
    }
}

fn is_private(line: &str) -> bool {
    line.contains(" anon=") && !line.contains(" file=") && !line.contains(" stack ")
}
