//! The node itself: it is ready, runs a pod of an image made here, and is gone without a trace, however the test ends.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use albacore_testbed::{Node, NodeOptions};

#[test]
fn a_node_is_ready() {
    let start = std::time::Instant::now();
    let node = Node::start(&NodeOptions::default()).unwrap();
    println!("{:?}", start.elapsed());
    let out = node
        .plane()
        .kubectl(&["get", "node,pod", "-A", "-o", "wide"])
        .unwrap();
    println!("{}", String::from_utf8_lossy(&out.stdout));
}
