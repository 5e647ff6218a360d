//! The timeout of a replayed batch.

use std::time::Duration;

use super::*;
use crate::limits::HANG_TIMEOUT_DEFAULT;

impl Harness {
    /// The worker begins its batch and then makes no progress.
    fn begin(&mut self) {
        let sequence = self.state.workers.slots[0].sequence;
        let fake = self.fakes[0].as_mut().unwrap();
        fake.ring.begin(sequence);
        let mut segments: Vec<Segment> = Vec::new();
        assert!(!fake.ring.is_command() && fake.ring.read(&mut segments));
        assert_eq!(segments.len(), 1);
    }

    /// Whether the worker is detected as hung `time` after the dispatch of its batch.
    fn hangs_after(&mut self, time: Duration) -> bool {
        let mut is_hung = false;
        let at = Nanos(self.now).saturating_add(time.into());
        self.change(|state, _, out| {
            for suspect in state.suspects(Nanos(0), at, out) {
                is_hung |= state.check_suspect(&suspect, None, at, at, out).is_some();
            }
        });
        is_hung
    }

    fn restart(&mut self) {
        self.kill(0);
        self.start(0);
        self.act(0, true);
    }
}

#[test]
fn the_timeout_of_a_batch_doubles_after_a_hang_but_not_after_an_external_kill() {
    let mut harness = Harness::new(1);
    harness.settle();
    harness.request(1);
    let late = HANG_TIMEOUT_DEFAULT + Duration::from_secs(1);
    for _ in 0..3 {
        harness.begin();
        harness.restart();
    }
    harness.begin();
    assert!(!harness.hangs_after(HANG_TIMEOUT_DEFAULT - Duration::from_secs(1)));
    assert!(harness.hangs_after(late));
    harness.restart();
    harness.begin();
    assert!(!harness.hangs_after(late));
    assert!(harness.hangs_after(HANG_TIMEOUT_DEFAULT + late));
}
