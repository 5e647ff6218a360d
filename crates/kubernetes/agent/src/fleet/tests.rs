//! The law of the steps: done in their order, they make of what is there what is wished.

use std::path::PathBuf;

use albacore_cluster::Key;
use albacore_mapping::Mode;
use albacore_os::CgroupVersion;
use albacore_plan::{Enforcement, MainThread, Placement, Source};
use proptest::prelude::*;

use super::*;
use crate::pods::{Container, PodSeen};

fn policy(workers: u16) -> Policy {
    Policy {
        workers,
        threads: 1,
        mode: Mode::Scatter,
        placement: Placement::Tuna,
        enforcement: Enforcement::Enforce,
        main_thread: MainThread::Pinned,
        is_pool_size_known: true,
    }
}

fn present(container: &str, workers: u16, generation: i64) -> Present {
    Present {
        id: SubjectId(0),
        container: container.to_owned(),
        cgroup: Cgroup {
            version: CgroupVersion::V2,
            mount: PathBuf::new(),
            directory: PathBuf::new(),
        },
        policy: policy(workers),
        generation,
    }
}

fn wish(uid: &str, aim: Aim) -> Wish {
    let pod = PodSeen {
        key: Key::new("x", uid),
        uid: uid.to_owned(),
        deployment: "d".to_owned(),
        addresses: Vec::new(),
        container: Container::NotRunning,
        is_static: false,
        is_over: false,
        regarding: Default::default(),
    };
    Wish { pod, aim }
}

fn place(container: &str, workers: u16, generation: i64) -> Aim {
    Aim::Place {
        container: container.to_owned(),
        source: Source::Named,
        policy: policy(workers),
        generation,
        trial: None,
    }
}

fn aims() -> impl Strategy<Value = Aim> {
    let reason = String::new;
    prop_oneof![
        ("[ab]", 1_u16..3, 1_i64..3).prop_map(|(c, w, g)| place(&c, w, g)),
        Just(Aim::Keep { reason: reason() }),
        Just(Aim::Leave { reason: reason() }),
    ]
}

proptest! {
    #[test]
    fn steps_lead_from_any_fleet_to_any_wishes(
        before in proptest::collection::btree_map("[p-s]", ("[ab]", 1_u16..3, 1_i64..3), 0..5),
        wanted in proptest::collection::btree_map("[p-s]", aims(), 0..5),
    ) {
        let before: BTreeMap<String, Present> =
            before.into_iter().map(|(uid, (c, w, g))| (uid, present(&c, w, g))).collect();
        let wishes: Vec<Wish> = wanted.iter().map(|(uid, aim)| wish(uid, aim.clone())).collect();
        let mut fleet = before.clone();
        for step in steps(&wishes, &before) {
            match step {
                Step::Remove(uid) => prop_assert!(fleet.remove(&uid).is_some()),
                Step::SetPolicy(uid, policy) => fleet.get_mut(&uid).unwrap().policy = policy,
                Step::Retry(uid, generation) => fleet.get_mut(&uid).unwrap().generation = generation,
                Step::Add(uid) => {
                    prop_assert!(!fleet.contains_key(&uid), "removed before");
                    let Aim::Place { container, policy, generation, .. } = &wanted[&uid] else {
                        return Err(TestCaseError::fail("not wished"));
                    };
                    fleet.insert(uid, present(container, policy.workers, *generation));
                }
            }
        }
        for (uid, aim) in &wanted {
            match aim {
                Aim::Place { container, policy, generation, .. } => {
                    prop_assert_eq!(&fleet[uid].container, container);
                    prop_assert_eq!(fleet[uid].generation, *generation);
                    prop_assert_eq!(&fleet[uid].policy, policy);
                }
                Aim::Keep { .. } => prop_assert_eq!(fleet.get(uid), before.get(uid)),
                Aim::Leave { .. } => prop_assert!(!fleet.contains_key(uid)),
            }
        }
        prop_assert!(fleet.keys().all(|uid| wanted.contains_key(uid)));
        prop_assert_eq!(steps(&wishes, &fleet), vec![], "settled means nothing to do");
    }
}
