//! Workers on NUMA nodes get local images, and no commands are sent without nodes.

use std::time::Duration;

use super::*;
use crate::image::CopyError;
use crate::limits::{COPY_RETRY_PAUSE, COPY_UNNEEDED_TIME_MAX, NODE_CHECK_PERIOD};
use crate::state::CopyTask;

const NONE: Option<NodeId> = None;
const ZERO: Option<NodeId> = Some(NodeId(0));
const ONE: Option<NodeId> = Some(NodeId(1));

impl Harness {
    /// The supervisor checks the nodes of the workers, after a time.
    fn check_nodes(&mut self, nodes: &[Option<NodeId>], after: Duration) -> Vec<CopyTask> {
        self.now += Nanos::from(after).0;
        let mut tasks = Vec::new();
        self.change(|state, now, _| tasks = state.set_worker_nodes(nodes, now));
        tasks
    }

    fn finish(&mut self, task: &CopyTask, is_made: bool) {
        let copy = match is_made {
            true => Ok(PlacedImage::on(Some(task.node))),
            false => Err(CopyError::Elsewhere),
        };
        self.change(|state, now, _| state.image_copied(task, copy, now));
    }

    fn images(&self, worker: usize) -> Vec<String> {
        let images = self.fakes[worker].as_ref().unwrap().has.values();
        images
            .map(|image| String::from_utf8(image.clone()).unwrap())
            .collect()
    }

    fn commands(&self) -> Vec<usize> {
        let fakes = self.fakes.iter().flatten();
        fakes.map(|fake| fake.commands).collect()
    }
}

fn name(node: Option<NodeId>) -> String {
    format!("{node:?}")
}

/// Two serving workers on these nodes; the image is on node 0.
fn placed(nodes: [Option<NodeId>; 2]) -> (Harness, Vec<CopyTask>) {
    let mut harness = Harness::new(2);
    harness.settle();
    let tasks = harness.check_nodes(&nodes, NODE_CHECK_PERIOD);
    harness.settle();
    (harness, tasks)
}

#[test]
fn without_several_nodes_no_copies_or_commands_are_requested() {
    let watch = crate::node_watch::NodeWatch::new();
    let has_multiple_nodes = crate::image::memory_nodes().has_multiple_nodes();
    assert_eq!(
        watch.is_some(),
        has_multiple_nodes,
        "one comparison at the start"
    );
    // Nodes are never reported there, and masks across several nodes are reported as none.
    let (mut harness, tasks) = placed([NONE, NONE]);
    assert!(tasks.is_empty());
    assert_eq!(harness.commands(), [1, 1], "to open the model");
    let requested = harness.check_nodes(&[NONE, NONE], COPY_UNNEEDED_TIME_MAX);
    assert!(requested.is_empty() && harness.state.memory_stats().copies_made_total == 0);
}

#[test]
fn each_worker_gets_the_image_on_its_node_and_keeps_it_while_it_stays() {
    let (mut harness, tasks) = placed([ZERO, ONE]);
    let requested: Vec<NodeId> = tasks.iter().map(|task| task.node).collect();
    assert_eq!(
        requested,
        [NodeId(1)],
        "node 0 has the image of the revision"
    );
    let far = |harness: &Harness| harness.state.memory_stats().workers_far;
    assert_eq!(far(&harness), 1);
    harness.finish(&tasks[0], true);
    harness.settle();
    assert_eq!(harness.images(0), [name(ZERO)]);
    assert_eq!(harness.images(1), [name(ONE)]);
    assert_eq!(far(&harness), 0);
    let commands = harness.commands();
    assert_eq!(commands, [2, 3], "both moved their scratch memory, too");
    for _ in 0..3 {
        assert!(
            harness
                .check_nodes(&[ZERO, ONE], COPY_UNNEEDED_TIME_MAX)
                .is_empty()
        );
        harness.settle();
    }
    assert_eq!(harness.commands(), commands, "nothing more is asked");
    // Both change their nodes; later they may run on any node.
    assert!(
        harness
            .check_nodes(&[ONE, ZERO], NODE_CHECK_PERIOD)
            .is_empty()
    );
    harness.settle();
    let swapped = [harness.images(0), harness.images(1)];
    assert_eq!(swapped, [[name(ONE)], [name(ZERO)]]);
    assert!(
        harness
            .check_nodes(&[NONE, NONE], NODE_CHECK_PERIOD)
            .is_empty()
    );
    harness.settle();
    assert_eq!([harness.images(0), harness.images(1)], swapped, "kept");
}

#[test]
fn a_failed_copy_changes_nothing_and_is_retried() {
    let (mut harness, tasks) = placed([ONE, ONE]);
    harness.finish(&tasks[0], false);
    harness.settle();
    assert_eq!(harness.images(0), [name(ZERO)]);
    assert_eq!(harness.state.memory_stats().copies_failed_total, 1);
    assert!(
        harness
            .check_nodes(&[ONE, ONE], NODE_CHECK_PERIOD)
            .is_empty()
    );
    let again = harness.check_nodes(&[ONE, ONE], COPY_RETRY_PAUSE);
    assert_eq!(again.len(), 1);
}

#[test]
fn a_worker_that_cannot_open_a_copy_keeps_its_image() {
    let (mut harness, tasks) = placed([ZERO, ONE]);
    harness.finish(&tasks[0], true);
    harness.act(1, false);
    harness.settle();
    assert_eq!(harness.images(1), [name(ZERO)]);
    assert_eq!(harness.state.workers.ready(), 2);
    assert_eq!(harness.state.memory_stats().copies_failed_total, 1);
}

#[test]
fn a_copy_is_dropped_once_no_worker_has_needed_it_for_a_while() {
    let (mut harness, tasks) = placed([ZERO, ONE]);
    harness.finish(&tasks[0], true);
    harness.settle();
    let images = |harness: &Harness| harness.state.memory_stats().images.len();
    harness.check_nodes(&[ZERO, ZERO], NODE_CHECK_PERIOD);
    harness.settle();
    assert_eq!((images(&harness), harness.images(1)), (2, vec![name(ZERO)]));
    harness.check_nodes(&[ZERO, ZERO], COPY_UNNEEDED_TIME_MAX);
    assert_eq!(images(&harness), 1);
    let requested = harness.check_nodes(&[ONE, ZERO], NODE_CHECK_PERIOD);
    assert_eq!(requested.len(), 1, "it is needed again");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_worker_that_is_pinned_to_a_node_with_a_copy_gets_that_copy(
        acts in proptest::collection::vec((0..11_u8, 0..2_usize, 0..4_u16), 0..80)
    ) {
        let mut harness = Harness::new(2);
        let mut nodes = [NONE; 2];
        let mut tasks = Vec::new();
        for (act, worker, node) in acts {
            match act {
                0..=2 => harness.act(worker, true),
                3 => harness.start(worker),
                4 => harness.kill(worker),
                5 => harness.propose(),
                6 | 7 => nodes[worker] = (node > 0).then(|| NodeId(node - 1)),
                8 => tasks = harness.check_nodes(&nodes, NODE_CHECK_PERIOD),
                9 => harness.request(1),
                _ => {
                    if let Some(task) = tasks.pop() {
                        harness.finish(&task, node > 0);
                    }
                }
            }
        }
        harness.settle();
        harness.check_nodes(&nodes, COPY_RETRY_PAUSE);
        harness.settle();
        for task in harness.check_nodes(&nodes, NODE_CHECK_PERIOD) {
            harness.finish(&task, true);
        }
        harness.settle();
        prop_assert_eq!(harness.state.pending(), 0);
        for (worker, &node) in nodes.iter().enumerate() {
            let images = harness.images(worker);
            prop_assert_eq!(images.len(), 1);
            prop_assert!(node.is_none() || images[0] == name(node), "{node:?}: {images:?}");
        }
        prop_assert!(harness.check_nodes(&nodes, NODE_CHECK_PERIOD).is_empty());
        prop_assert_eq!(harness.state.memory_stats().workers_far, 0);
    }
}
