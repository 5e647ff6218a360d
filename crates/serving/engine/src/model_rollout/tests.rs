//! The state with simulated workers on real rings and channels: in any order of events, no batch
//! uses an image that its worker lacks.

use std::collections::BTreeMap;

use albacore_batching::{BatchingParams, Config, Policy, QueueIndex};
use albacore_os::{Channel, Extent, NodeId, SharedMemory};
use albacore_worker::Segment;
use proptest::prelude::*;

use super::*;
use crate::LoopIndex;
use crate::admission::RequestTerms;
use crate::model::Usage;
use crate::state::{Answer, Incarnation, NewRequest, Pending};
use crate::{Kind, KindSet, ModelInfo};

mod losses;
mod nodes;

/// A simulated worker.
struct FakeWorker {
    ring: Ring,
    channel: Channel,
    /// Its open images, by revision.
    has: BTreeMap<RevisionId, Vec<u8>>,
    commands: usize,
    sequence: u32,
}

impl FakeWorker {
    /// Executes the front's command or batch, if any; a command to open fails unless `can_open`.
    fn act(&mut self, sequence: u32, can_open: bool) {
        if sequence == self.sequence {
            return;
        }
        self.sequence = sequence;
        if self.ring.is_command() {
            let message = self.channel.receive().unwrap().unwrap();
            let command = WorkerCommand::decode(&message.bytes).unwrap();
            self.commands += 1;
            self.has.retain(|id, _| !command.closes.contains(id));
            match command.opens {
                Some((id, _)) if can_open => {
                    let [fd] = <[_; 1]>::try_from(message.fds).unwrap();
                    let image = SharedMemory::open(fd).unwrap().map_read().unwrap();
                    self.has.insert(id, image.as_slice().to_vec());
                }
                Some(_) => self.ring.fail(0, "no memory"),
                None => {}
            }
            self.ring.finish(sequence, 1, std::time::Duration::ZERO);
            return;
        }
        let mut segments: Vec<Segment> = Vec::new();
        assert!(self.ring.read(&mut segments));
        for segment in &segments {
            let id = segment.revision;
            assert!(
                self.has.contains_key(&id),
                "{id:?} is not among {:?}",
                self.has
            );
        }
        self.ring
            .finish(sequence, segments.len(), std::time::Duration::ZERO);
    }
}

/// A state, its simulated workers, and the pending requests.
struct Harness {
    state: State,
    fakes: Vec<Option<FakeWorker>>,
    memory: Option<Extent>,
    answers: Vec<oneshot::Receiver<Answer>>,
    installs: Vec<oneshot::Receiver<Installed>>,
    now: u64,
    /// Number of rows of all requests.
    rows: u64,
}

impl Harness {
    fn new(workers: usize) -> Self {
        let config = Config {
            queues: 0,
            workers,
            batching: BatchingParams {
                policy: Policy::Eager,
                batch_rows_max: 4,
                window: None,
                queue_rows_max: 64,
            },
            batch_requests_max: 8,
        };
        let mut state = State::new(config, 1, 1, 0);
        assert_eq!(state.declare("m", None), Ok(0));
        let memory = SharedMemory::create("test", 1 << 20).unwrap();
        let mut harness = Self {
            state,
            fakes: (0..workers).map(|_| None).collect(),
            memory: Some(memory.map_extent().unwrap()),
            answers: Vec::new(),
            installs: Vec::new(),
            now: 0,
            rows: 0,
        };
        harness.propose();
        harness.change(|state, _, out| state.promote(out));
        assert_eq!(harness.installs[0].try_recv(), Ok(Ok(())));
        harness
    }

    /// Like `SharedState::update`.
    fn change(&mut self, change: impl FnOnce(&mut State, Nanos, &mut Outbox)) {
        self.now += 1;
        let (now, mut out) = (Nanos(self.now), Outbox::default());
        change(&mut self.state, now, &mut out);
        for ended in std::mem::take(&mut out.ended) {
            let timing = ended.timing(now);
            let NewRequest {
                revision,
                results,
                reply,
                ..
            } = ended.request;
            if revision.usage.unpin() {
                self.state.drop_unneeded_revisions();
            }
            let failure = ended.failure.map_or(Ok(()), Err);
            let _ = reply.send(failure.map(|()| (results, timing, now)));
        }
        self.state.advance_rollout(now, &mut out);
        for (reply, installed) in out.installed {
            let _ = reply.send(installed);
        }
    }

    fn collect(&mut self) {
        self.change(|state, now, out| state.collect_all(now, out));
    }

    fn propose(&mut self) {
        let id = self.state.catalog.next_id();
        let revision = Arc::new(ModelRevision {
            id,
            slot: 0,
            info: ModelInfo {
                name: "m".to_owned(),
                features: 1,
                ..ModelInfo::default()
            },
            kernels: Default::default(),
            image: Arc::new(PlacedImage::on(Some(NodeId(0)))),
            usage: Usage::default(),
        });
        let (reply, installed) = oneshot::channel();
        self.installs.push(installed);
        self.change(|state, _, out| state.propose(revision, reply, out));
    }

    fn start(&mut self, worker: usize) {
        if self.fakes[worker].is_some() {
            return;
        }
        let ring = Ring::create("test").unwrap();
        let worker_ring = Ring::open(ring.fd().try_clone_to_owned().unwrap()).unwrap();
        let (channel, their_channel) = Channel::pair().unwrap();
        let incarnation = Arc::new(Incarnation { ring, channel });
        worker_ring.set_ready();
        self.fakes[worker] = Some(FakeWorker {
            ring: worker_ring,
            channel: their_channel,
            has: BTreeMap::new(),
            commands: 0,
            sequence: 0,
        });
        self.change(|state, now, out| {
            state.worker_started(worker, incarnation, Nanos(0));
            state.collect_all(now, out);
        });
    }

    fn act(&mut self, worker: usize, can_open: bool) {
        let sequence = self.state.workers.slots[worker].sequence;
        // An incarnation that the front has abandoned was sent the stop command.
        let is_stopped = self.state.workers.slots[worker].incarnation.is_none();
        match &mut self.fakes[worker] {
            Some(_) if is_stopped => self.kill(worker),
            Some(fake) => {
                fake.act(sequence, can_open);
                self.collect();
            }
            None => {}
        }
    }

    fn kill(&mut self, worker: usize) {
        if self.fakes[worker].take().is_some() {
            let exit = Exit::Signal(9);
            self.change(|state, now, out| {
                state.worker_ended(worker, exit, now, out);
            });
        }
    }

    fn request(&mut self, rows: usize) {
        let current = Arc::clone(self.state.catalog.current_of(0).unwrap());
        let memory = self.memory.take().unwrap();
        let (input, memory) = memory.split_at(64);
        let (results, memory) = memory.split_at(64);
        self.memory = Some(memory);
        let (reply, answer) = oneshot::channel();
        let first_key = self.rows;
        self.rows += rows as u64;
        self.answers.push(answer);
        self.change(|state, now, out| {
            if state.scheduler.reserve(QueueIndex(0), rows).is_err() {
                return;
            }
            assert!(current.usage.pin());
            let request = NewRequest {
                model: 0,
                revision: current,
                event_loop: LoopIndex::default(),
                first_key,
                submitted: now,
                kinds: KindSet::only(Kind::Value),
                is_double: false,
                rows,
                input,
                results,
                reply,
                terms: RequestTerms {
                    arrival: now,
                    deadline: None,
                    priority: crate::Priority::Normal,
                },
            };
            state.submit_all(vec![Pending::new(request)], now, out);
        });
    }

    /// Every worker acts until nothing is pending.
    fn settle(&mut self) {
        for _ in 0..200 {
            for worker in 0..self.fakes.len() {
                self.start(worker);
                self.act(worker, true);
            }
        }
    }

    fn has(&self, worker: usize) -> Vec<RevisionId> {
        let fake = self.fakes[worker].as_ref();
        fake.map_or_else(Vec::new, |fake| fake.has.keys().copied().collect())
    }
}

#[test]
fn a_candidate_is_promoted_when_every_serving_worker_has_it_and_the_old_one_is_closed() {
    let mut harness = Harness::new(2);
    harness.settle();
    assert_eq!(harness.state.workers.ready(), 2);
    let old = harness.has(0);
    harness.propose();
    harness.act(0, true);
    assert_eq!(harness.has(0).len(), 2, "both");
    assert!(
        harness.installs[1].try_recv().is_err(),
        "the other worker lacks it"
    );
    assert_eq!(
        harness.state.scheduler.present_workers(),
        1,
        "one at a time"
    );
    harness.act(1, true);
    assert_eq!(harness.installs[1].try_recv(), Ok(Ok(())));
    harness.settle();
    assert!(harness.has(0) == harness.has(1) && harness.has(0).len() == 1 && harness.has(0) != old);
    assert_eq!(harness.state.scheduler.present_workers(), 2);
}

#[test]
fn a_candidate_that_cannot_be_opened_is_rejected() {
    let mut harness = Harness::new(2);
    harness.settle();
    let old = harness.has(1);
    harness.propose();
    harness.act(0, true);
    harness.act(1, false);
    let reason = "worker 1 cannot open it: no memory".to_owned();
    assert_eq!(harness.installs[1].try_recv(), Ok(Err(reason)));
    harness.settle();
    assert_eq!(
        (harness.has(0), harness.has(1)),
        (old.clone(), old),
        "closed again"
    );
    assert_eq!(harness.state.workers.ready(), 2);
}

#[test]
fn a_candidate_that_kills_workers_is_given_up() {
    let mut harness = Harness::new(1);
    harness.settle();
    harness.propose();
    for death in 1..=OPEN_CRASHES_MAX {
        assert!(harness.installs[1].try_recv().is_err(), "{death}");
        harness.kill(0);
        harness.start(0);
        // It opens the promoted image, serves, and is held for the candidate.
        harness.act(0, true);
    }
    let reason = "3 workers crashed while they opened it, last with signal 9".to_owned();
    assert_eq!(harness.installs[1].try_recv(), Ok(Err(reason)));
    harness.settle();
    assert_eq!(
        (harness.state.workers.ready(), harness.has(0).len()),
        (1, 1)
    );
}

#[test]
fn a_worker_that_cannot_open_a_served_revision_is_restarted_and_counted() {
    let mut harness = Harness::new(1);
    harness.start(0);
    harness.act(0, false);
    assert!(
        harness.state.workers.slots[0].incarnation.is_none(),
        "it gets the command to stop"
    );
    harness.kill(0);
    assert_eq!(harness.state.workers.most_failed_start().0, 1);
    harness.settle();
    assert_eq!(
        (
            harness.state.workers.ready(),
            harness.state.workers.most_failed_start().0
        ),
        (1, 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn requests_are_computed_by_the_revision_that_admitted_them(
        acts in proptest::collection::vec((0..12_u8, 0..3_usize, 1..10_usize), 0..120)
    ) {
        let mut harness = Harness::new(3);
        for (act, worker, rows) in acts {
            match act {
                0..=3 => harness.act(worker, true),
                4 => harness.act(worker, false),
                5 | 6 => harness.start(worker),
                7 => harness.kill(worker),
                8 => harness.propose(),
                9 => harness.collect(),
                _ => harness.request(rows),
            }
        }
        harness.settle();
        // A request that crashed many workers fails instead.
        prop_assert_eq!(harness.state.pending(), 0);
        let mut finished = harness.installs.iter_mut().skip(1);
        prop_assert!(finished.all(|install| install.try_recv().is_ok()), "each install ends");
        let current = vec![harness.state.catalog.current_of(0).unwrap().id];
        for worker in 0..3 {
            prop_assert_eq!(harness.has(worker), current.clone(), "old images are closed");
        }
        prop_assert_eq!(harness.state.scheduler.present_workers(), 3);
    }
}
