//! Tests of memory files and their views.

use super::*;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn bytes_written_through_an_extent_are_read_through_another_mapping() {
    let memory = SharedMemory::create("test", 8192).unwrap();
    let (mut first, mut second) = memory.map_extent().unwrap().split_at(100);
    first.as_mut_slice().fill(1);
    second.as_mut_slice()[0] = 2;
    let read = memory.map_read().unwrap();
    assert_eq!(&read.as_slice()[98..102], [1, 1, 2, 0]);
    assert_eq!(
        (first.offset(), first.len(), second.offset()),
        (0, 100, 100)
    );
    let (second, first) = second.join(first).unwrap_err();
    assert_eq!(first.join(second).unwrap().len(), 8192);
}

#[test]
fn extents_of_different_mappings_do_not_join() {
    let memory = SharedMemory::create("test", 8192).unwrap();
    let (first, _) = memory.map_extent().unwrap().split_at(64);
    let (_, other) = memory.map_extent().unwrap().split_at(64);
    assert!(first.join(other).is_err());
}

#[test]
fn a_file_that_holds_contents_cannot_be_mapped_writable() {
    let memory = SharedMemory::create_sealed("test", b"model").unwrap();
    assert_eq!(memory.map_read().unwrap().as_slice(), b"model");
    assert!(memory.map_extent().is_err());
    let again = SharedMemory::open(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(again.map_read().unwrap().as_slice(), b"model");
}

#[test]
fn large_contents_are_written_as_small_ones_are() {
    let contents: Vec<u8> = (0..HUGE_PAGE_BYTES + 5).map(|at| at as u8).collect();
    let memory = SharedMemory::create_sealed("test", &contents).unwrap();
    assert_eq!(memory.bytes(), contents.len());
    assert!(memory.map_read().unwrap().as_slice() == contents);
    assert!(memory.map_extent().is_err(), "sealed");
}

#[test]
fn children_that_start_meanwhile_do_not_keep_contents_from_being_sealed() {
    let contents = vec![1; HUGE_PAGE_BYTES];
    let is_done = AtomicBool::new(false);
    let start_children = || {
        while !is_done.load(Ordering::Relaxed) {
            let mut child = Command::new("/bin/true");
            let before_exec = || {
                std::thread::sleep(Duration::from_millis(5));
                Ok(())
            };
            // SAFETY: sleeping is allowed between fork and exec.
            unsafe { child.pre_exec(before_exec) };
            child.status().unwrap();
        }
    };
    let hold = |_| SharedMemory::create_sealed("test", &contents).map(drop);
    let held: Result<Vec<()>, OsError> = std::thread::scope(|scope| {
        scope.spawn(start_children);
        let held = (0..100).map(hold).collect();
        is_done.store(true, Ordering::Relaxed);
        held
    });
    held.unwrap();
}

#[test]
fn after_the_seal_only_the_old_mapping_can_write() {
    let memory = SharedMemory::create("test", 4096).unwrap();
    let mut extent = memory.map_extent().unwrap();
    memory.seal_future_writes().unwrap();
    extent.as_mut_slice()[7] = 7;
    assert!(memory.map_extent().is_err());
    assert_eq!(memory.map_read().unwrap().as_slice()[7], 7);
}

#[test]
fn a_file_that_can_shrink_is_not_opened() {
    let file = memfd_create("test", MFdFlags::MFD_CLOEXEC).unwrap();
    assert!(SharedMemory::open(file).is_err());
    let plain = File::open("/dev/null").unwrap();
    assert!(SharedMemory::open(plain.into()).is_err());
}

#[test]
fn words_are_shared_and_released_pages_read_as_zeros() {
    let memory = SharedMemory::create("test", 2 * FUTEX_BYTES).unwrap();
    let (one, two) = (memory.map_words().unwrap(), memory.map_words().unwrap());
    one.futexes()[1023].store(5, Ordering::Relaxed);
    one.words()[511].store(6, Ordering::Relaxed);
    assert_eq!(two.futexes()[1023].load(Ordering::Relaxed), 5);
    assert_eq!(two.words()[511].load(Ordering::Relaxed), 6);
    let mut extent = memory.map_extent().unwrap();
    memory.release(&mut extent).unwrap();
    assert_eq!(two.words()[511].load(Ordering::Relaxed), 0);
}
