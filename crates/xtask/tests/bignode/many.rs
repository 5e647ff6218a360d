//! The test steps in a guest with 32 CPUs: 8 workers of 4 threads on all CPUs, on half of them, and
//! while a CPU is offline.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::guest::{LONG, make_pod, masks, serve, step, stop_placer, the_machine, wait_until};

/// The CPUs of the guest.
pub(crate) const CPUS: &str = "0-31";

const WORKERS: usize = 8;
const THREADS: usize = 32;

/// Runs all steps after the mounts.
pub(crate) fn run_steps() {
    step("the machine", || {
        the_machine(&["32 cpus", "16 cores", "4 numa domains", "4 packages"]);
    });
    let (_, container) = step("a pod", || make_pod(CPUS));
    let machine = Machine::read();
    let small = fs::read_to_string("/fraud.yaml").unwrap();
    let large = small.replace("workers: 2", "workers: 8");
    fs::write("/many.yaml", large.replace("threads: 2", "threads: 4")).unwrap();
    let mut placer = serve(&container, "/many.yaml");
    let all: BTreeSet<u32> = (0..32).collect();
    let await_placed = |what: &str, cpus: &BTreeSet<u32>| {
        let took = wait_until(what, LONG * 2, || machine.is_placed(&container, cpus));
        println!("{what} after {took:.0?}");
    };
    step("placed", || {
        await_placed("placed", &all);
        println!("{:?}", masks(&container));
    });
    step("half of it", || {
        for _ in 0..5 {
            fs::write(container.join("cpuset.cpus"), "0-15").unwrap();
            await_placed("on half of it", &(0..16).collect());
            fs::write(container.join("cpuset.cpus"), CPUS).unwrap();
            await_placed("on all of it", &all);
        }
    });
    step("a cpu goes and comes back", || {
        let online = "/sys/devices/system/cpu/cpu13/online";
        fs::write(online, "0").unwrap();
        let left = all.iter().copied().filter(|&cpu| cpu != 13).collect();
        await_placed("without cpu 13", &left);
        fs::write(online, "1").unwrap();
        await_placed("with cpu 13", &all);
    });
    step("given back", || stop_placer(&mut placer));
}

/// Core and package of each CPU.
struct Machine(BTreeMap<u32, (String, String)>);

impl Machine {
    fn read() -> Self {
        let place = |cpu: u32| {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
            let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).unwrap();
            (read("thread_siblings_list"), read("physical_package_id"))
        };
        Self((0..32).map(|cpu| (cpu, place(cpu))).collect())
    }

    /// Whether every thread is pinned to one CPU, the CPUs are shared evenly, main threads are on
    /// different cores, and every package has the same number of them.
    fn is_placed(&self, container: &Path, cpus: &BTreeSet<u32>) -> bool {
        let mut threads: BTreeMap<u32, usize> = BTreeMap::new();
        let (mut cores, mut packages) = (BTreeSet::new(), BTreeMap::<_, usize>::new());
        for (name, mask) in masks(container) {
            let Ok(cpu) = mask.parse() else {
                return false;
            };
            *threads.entry(cpu).or_default() += 1;
            if name.ends_with(".0") {
                let (core, package) = &self.0[&cpu];
                cores.insert(core.as_str());
                *packages.entry(package.as_str()).or_default() += 1;
            }
        }
        let used: BTreeSet<u32> = threads.keys().copied().collect();
        let even = THREADS.div_ceil(cpus.len());
        let same = packages.values().collect::<BTreeSet<_>>().len() == 1;
        threads.values().sum::<usize>() == THREADS
            && used == *cpus
            && threads.values().all(|&count| count <= even)
            && cores.len() == WORKERS
            && same
    }
}
