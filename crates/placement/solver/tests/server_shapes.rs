//! Shapes of real servers, as their kernels describe them: workers straddle nodes only if
//! necessary, mains are spread over nodes, and the bound is met or the gap is small.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use albacore_solver::{Mode, Problem, Solution, WorkBudget, check_solution, solve};
use albacore_topology::{Cpu, CpuSet, SysfsFiles, Topology, parse_sysfs};

/// A regular server: number of each unit in the next larger one.
#[derive(Clone, Copy)]
struct Server {
    packages: usize,
    nodes: usize,
    /// L3 caches of a package; not necessarily inside of nodes.
    l3s: usize,
    /// Cores of a package.
    cores: usize,
    threads: usize,
}

/// AMD EPYC, 2 x 64 cores, 8 cores per L3, one NUMA node per package.
const EPYC_NPS1: Server = Server {
    packages: 2,
    nodes: 1,
    l3s: 8,
    cores: 64,
    threads: 2,
};

/// The same with four nodes per package.
const EPYC_NPS4: Server = Server {
    nodes: 4,
    ..EPYC_NPS1
};

/// Intel Xeon, 2 x 32 cores, one L3 per package over two sub-NUMA clusters.
const XEON_SNC2: Server = Server {
    packages: 2,
    nodes: 2,
    l3s: 1,
    cores: 32,
    threads: 2,
};

/// Arm, 128 cores without SMT, two nodes; the system-level cache is not exposed.
const ARM_128: Server = Server {
    packages: 2,
    nodes: 1,
    l3s: 0,
    cores: 64,
    threads: 1,
};

impl Server {
    /// Contents of its `/sys/devices/system`, with ids as in Linux: the first threads of all cores,
    /// then their second threads.
    fn sysfs(self) -> SysfsFiles {
        let cores = self.packages * self.cores;
        let mut files = SysfsFiles::new();
        let mut put = |path: String, text: String| files.insert(path, text + "\n");
        put(
            "cpu/online".to_owned(),
            format!("0-{}", cores * self.threads - 1),
        );
        let list = |from: usize, count: usize| {
            let threads = (0..self.threads).map(|thread| from + thread * cores);
            let ranges = threads.map(|from| format!("{from}-{}", from + count - 1));
            ranges.collect::<Vec<_>>().join(",")
        };
        let nodes = self.packages * self.nodes;
        put("node/online".to_owned(), format!("0-{}", nodes - 1));
        let of_node = self.cores / self.nodes;
        for node in 0..nodes {
            put(
                format!("node/node{node}/cpulist"),
                list(node * of_node, of_node),
            );
            let distance = |to: usize| match to {
                _ if to == node => "10",
                _ if to / self.nodes == node / self.nodes => "12",
                _ => "32",
            };
            let row: Vec<&str> = (0..nodes).map(distance).collect();
            put(format!("node/node{node}/distance"), row.join(" "));
        }
        for core in 0..cores {
            for thread in 0..self.threads {
                let mut of_cpu = |file: &str, text: String| {
                    put(format!("cpu/cpu{}/{file}", core + thread * cores), text);
                };
                of_cpu("topology/core_cpus_list", list(core, 1));
                of_cpu(
                    "topology/physical_package_id",
                    (core / self.cores).to_string(),
                );
                of_cpu("cache/index2/level", "2".to_owned());
                of_cpu("cache/index2/shared_cpu_list", list(core, 1));
                if let Some(of_l3) = self.cores.checked_div(self.l3s) {
                    of_cpu("cache/index3/level", "3".to_owned());
                    of_cpu(
                        "cache/index3/shared_cpu_list",
                        list(core / of_l3 * of_l3, of_l3),
                    );
                }
            }
        }
        files
    }

    fn topology(self) -> Topology {
        parse_sysfs(&self.sysfs()).unwrap()
    }
}

/// 8 fast cores of 2 threads and 16 slow ones in clusters of four; one L3.
fn hybrid() -> Topology {
    let mut files = SysfsFiles::from([
        ("cpu/online".to_owned(), "0-31".to_owned()),
        ("cpu_core/cpus".to_owned(), "0-15".to_owned()),
        ("cpu_atom/cpus".to_owned(), "16-31".to_owned()),
    ]);
    for cpu in 0..32usize {
        let (core, cluster) = match cpu {
            0..16 => (cpu / 2 * 2, cpu / 2 * 2),
            _ => (cpu, cpu / 4 * 4),
        };
        let (of_core, of_l2) = if cpu < 16 { (2, 2) } else { (1, 4) };
        let list = |from: usize, count: usize| format!("{from}-{}", from + count - 1);
        for (file, text) in [
            ("topology/core_cpus_list", list(core, of_core)),
            ("cache/index2/level", "2".to_owned()),
            ("cache/index2/shared_cpu_list", list(cluster, of_l2)),
            ("cache/index3/level", "3".to_owned()),
            ("cache/index3/shared_cpu_list", "0-31".to_owned()),
        ] {
            files.insert(format!("cpu/cpu{cpu}/{file}"), text);
        }
    }
    parse_sysfs(&files).unwrap()
}

/// The first package without the second threads of its lower cores.
fn half_cores(server: Server) -> Topology {
    let lower = server.cores / 2;
    let second = server.packages * server.cores;
    let cpuset: CpuSet = format!(
        "0-{},{}-{}",
        server.cores - 1,
        second + lower,
        second + server.cores - 1
    )
    .parse()
    .unwrap();
    server.topology().restrict(&cpuset).unwrap()
}

fn solved(topology: &Topology, (workers, threads): (u16, u16), mode: Mode) -> Solution {
    let problem = Problem {
        workers,
        threads,
        mode,
        topology: topology.clone(),
        distances: topology.distances(),
        current: None,
    };
    let solution = solve(&problem, &mut WorkBudget::of_time(BUDGET)).unwrap();
    check_solution(&problem, &solution).unwrap();
    solution
}

/// Time budget on a usual machine.
const BUDGET: Duration = Duration::from_millis(50);

fn cpus_of(topology: &Topology, solution: &Solution, worker: usize) -> Vec<Cpu> {
    let threads = usize::from(solution.mapping.threads);
    let own = &solution.mapping.cpus[worker * threads..][..threads];
    own.iter().map(|&id| *topology.cpu(id).unwrap()).collect()
}

fn distinct(cpus: &[Cpu], number: fn(&Cpu) -> u32) -> usize {
    cpus.iter().map(number).collect::<BTreeSet<u32>>().len()
}

fn shapes() -> [(&'static str, Topology); 6] {
    [
        ("EPYC NPS1", EPYC_NPS1.topology()),
        ("EPYC NPS4", EPYC_NPS4.topology()),
        ("Xeon SNC2", XEON_SNC2.topology()),
        ("Arm 128", ARM_128.topology()),
        ("hybrid 8 + 16", hybrid()),
        ("half cores", half_cores(EPYC_NPS4)),
    ]
}

/// Common values of W and T, among them workers that do not fit into an L3.
const SIZES: [(u16, u16); 6] = [(4, 4), (8, 8), (4, 12), (2, 24), (16, 4), (32, 2)];

#[test]
fn shapes_have_the_domains_of_the_real_ones() {
    let counts = |topology: &Topology| {
        let number: [fn(&Cpu) -> u32; 4] = [|c| c.core, |c| c.l3, |c| c.numa, |c| c.package];
        number.map(|number| distinct(topology.cpus(), number))
    };
    assert_eq!(counts(&EPYC_NPS1.topology()), [128, 16, 2, 2]);
    assert_eq!(counts(&EPYC_NPS4.topology()), [128, 16, 8, 2]);
    assert_eq!(counts(&XEON_SNC2.topology()), [64, 4, 4, 2]);
    assert_eq!(counts(&ARM_128.topology()), [128, 2, 2, 2]);
    assert_eq!(counts(&hybrid()), [24, 1, 1, 1]);
    let distances = EPYC_NPS4.topology().distances();
    assert_eq!(
        (distances.numa, distances.package, distances.machine),
        (100, 120, 320)
    );
}

#[test]
fn a_compact_worker_that_fits_into_a_node_straddles_none() {
    for (name, topology) in shapes() {
        let mut cores: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for cpu in topology.cpus() {
            cores.entry(cpu.numa).or_default().insert(cpu.core);
        }
        let smallest = cores.values().map(BTreeSet::len).min().unwrap();
        for (workers, threads) in SIZES {
            // rule (8+) spreads the load over all cores
            let slots = usize::from(workers * threads);
            let on_core = slots.div_ceil(topology.core_count());
            if usize::from(threads) > smallest * on_core {
                continue;
            }
            let solution = solved(&topology, (workers, threads), Mode::Compact);
            for worker in 0..workers.into() {
                let cpus = cpus_of(&topology, &solution, worker);
                let nodes = distinct(&cpus, |cpu| cpu.numa);
                assert_eq!(nodes, 1, "{name}, {workers} x {threads}, worker {worker}");
            }
        }
    }
}

#[test]
fn a_compact_worker_that_needs_several_l3_stays_in_one_package() {
    for (name, server) in [("NPS1", EPYC_NPS1), ("NPS4", EPYC_NPS4)] {
        let topology = server.topology();
        let solution = solved(&topology, (4, 40), Mode::Compact);
        for worker in 0..4 {
            let cpus = cpus_of(&topology, &solution, worker);
            assert_eq!(
                distinct(&cpus, |cpu| cpu.package),
                1,
                "{name}, worker {worker}"
            );
        }
    }
}

#[test]
fn mains_of_a_scattered_deployment_are_spread_over_the_nodes() {
    for (name, topology) in shapes() {
        let nodes = topology.node_count();
        for (workers, threads) in SIZES {
            let solution = solved(&topology, (workers, threads), Mode::Scatter);
            let mains: Vec<Cpu> = (0..workers.into())
                .map(|worker| cpus_of(&topology, &solution, worker)[0])
                .collect();
            let expected = nodes.min(workers.into());
            let found = distinct(&mains, |cpu| cpu.numa);
            assert_eq!(found, expected, "{name}, {workers} x {threads}");
        }
    }
}

#[test]
fn the_bound_is_met_or_the_gap_is_small() {
    for (name, topology) in shapes() {
        for mode in [Mode::Scatter, Mode::Compact] {
            for size in SIZES {
                let certificate = solved(&topology, size, mode).certificate;
                let gap = certificate.bound - certificate.objective;
                let percent = 100.0 * gap as f64 / certificate.bound.unsigned_abs().max(1) as f64;
                println!(
                    "{name}\t{mode:?}\t{size:?}\t{}\t{percent:.3}",
                    certificate.optimal
                );
                assert!(
                    percent <= GAP_PERCENT_MAX,
                    "{name}, {mode:?}, {size:?}: {percent}"
                );
            }
        }
    }
}

/// Largest gap, in percent of the bound.
const GAP_PERCENT_MAX: f64 = 2.0;
