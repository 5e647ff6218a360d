//! Executed in order, the commands turn any set of placed pods into the desired set.

use std::path::PathBuf;

use albacore_os::CgroupVersion;
use albacore_plan::ServerKind;
use proptest::prelude::*;

use super::*;
use crate::desired::CountSources;
use crate::opted_in_pod::PlacedContainer;
use crate::pods_for_tests::{opted_in_pod, policy};

fn placed_pod(container: &str, workers: u16, generation: i64) -> PlacedPod {
    PlacedPod {
        id: SubjectId(0),
        container: container.to_owned(),
        cgroup: Cgroup {
            version: CgroupVersion::V2,
            mount: PathBuf::new(),
            directory: PathBuf::new(),
        },
        policy: policy(workers, 1),
        generation,
    }
}

fn desired_pod(uid: &str, action: PodAction) -> DesiredPod {
    let mut pod = opted_in_pod(uid, uid);
    pod.container = PlacedContainer::NotRunning {
        name: "server".to_owned(),
    };
    DesiredPod { pod, action }
}

fn place(container: &str, workers: u16, generation: i64) -> PodAction {
    PodAction::Place {
        container: container.to_owned(),
        server_kind: Some(ServerKind::Named),
        policy: policy(workers, 1),
        generation,
        counts: CountSources::Deployment,
        trial: None,
    }
}

fn actions() -> impl Strategy<Value = PodAction> {
    let reason = String::new;
    prop_oneof![
        ("[ab]", 1_u16..3, 1_i64..3).prop_map(|(c, w, g)| place(&c, w, g)),
        Just(PodAction::Keep { reason: reason() }),
        Just(PodAction::Release { reason: reason() }),
        Just(PodAction::Refuse { reason: reason() }),
    ]
}

proptest! {
    #[test]
    fn commands_turn_any_placed_pods_into_any_desired_pods(
        before in proptest::collection::btree_map("[p-s]", ("[ab]", 1_u16..3, 1_i64..3), 0..5),
        wanted in proptest::collection::btree_map("[p-s]", actions(), 0..5),
    ) {
        let before: BTreeMap<String, PlacedPod> =
            before.into_iter().map(|(uid, (c, w, g))| (uid, placed_pod(&c, w, g))).collect();
        let desired: Vec<DesiredPod> = wanted.iter().map(|(uid, action)| desired_pod(uid, action.clone())).collect();
        let mut placed = before.clone();
        for command in commands(&desired, &before) {
            match command {
                PlacerCommand::Remove(uid) => prop_assert!(placed.remove(&uid).is_some()),
                PlacerCommand::SetPolicy(uid, policy) => placed.get_mut(&uid).unwrap().policy = policy,
                PlacerCommand::Retry(uid, generation) => placed.get_mut(&uid).unwrap().generation = generation,
                PlacerCommand::Add(uid) => {
                    prop_assert!(!placed.contains_key(&uid), "removed before");
                    let PodAction::Place { container, policy, generation, .. } = &wanted[&uid] else {
                        return Err(TestCaseError::fail("not desired"));
                    };
                    placed.insert(uid, placed_pod(container, policy.workers, *generation));
                }
            }
        }
        for (uid, action) in &wanted {
            match action {
                PodAction::Place { container, policy, generation, .. } => {
                    prop_assert_eq!(&placed[uid].container, container);
                    prop_assert_eq!(placed[uid].generation, *generation);
                    prop_assert_eq!(&placed[uid].policy, policy);
                }
                PodAction::Keep { .. } => prop_assert_eq!(placed.get(uid), before.get(uid)),
                PodAction::Release { .. } | PodAction::Refuse { .. } => prop_assert!(!placed.contains_key(uid)),
            }
        }
        prop_assert!(placed.keys().all(|uid| wanted.contains_key(uid)));
        prop_assert_eq!(commands(&desired, &placed), vec![], "settled means nothing to do");
    }
}
