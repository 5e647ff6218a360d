//! Tests that malformed objects affect only themselves. `cargo bench -p albacore-controller -- fuzz
//! 5000` runs the same test with many objects.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod fuzz;
mod rig;

#[test]
fn strange_objects_leave_their_neighbors_alone() {
    fuzz::run(300);
}
