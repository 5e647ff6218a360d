//! Memory freed by a thread, in a program whose allocator is mimalloc.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::sync::{Mutex, PoisonError};

use albacore_os::collect_mimalloc;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Locked by the test that measures, because the figures are process-wide.
static MEASURING: Mutex<()> = Mutex::new(());

/// A value that a file of this process reports in KiB, in bytes.
fn bytes(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    1024 * kib.parse::<u64>().unwrap()
}

/// Anonymous resident bytes of this process.
fn resident_bytes() -> u64 {
    bytes("status", "RssAnon:")
}

#[test]
fn the_heap_asks_for_no_huge_pages() {
    let _measuring = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let buffer = std::hint::black_box(vec![1_u8; 8 << 20]);
    let huge = bytes("smaps_rollup", "AnonHugePages:");
    drop(buffer);
    // With `always`, the kernel uses huge pages without a request. A kernel without them has no
    // such file.
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let is_unasked = mode.is_ok_and(|mode| mode.contains("[always]"));
    assert!(huge == 0 || is_unasked, "{huge} bytes");
}

#[test]
fn a_thread_gives_back_what_it_freed_at_once_however_large_the_buffers_were() {
    let _measuring = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    const BYTES: u64 = 8 << 20;
    for buffer_bytes in [4_usize << 10, 64 << 10, 512 << 10, 8 << 20] {
        let thread = std::thread::spawn(move || {
            let count = BYTES as usize / buffer_bytes;
            let buffers: Vec<Vec<u8>> = (0..count).map(|_| vec![1_u8; buffer_bytes]).collect();
            let before = resident_bytes();
            drop(std::hint::black_box(buffers));
            collect_mimalloc();
            before.saturating_sub(resident_bytes())
        });
        let returned = thread.join().unwrap();
        assert!(
            returned >= BYTES - BYTES / 8,
            "{returned} of {BYTES} bytes of buffers of {buffer_bytes} were returned"
        );
    }
}
