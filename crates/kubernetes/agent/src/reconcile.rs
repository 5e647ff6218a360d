//! The reconcile loop: reads the state reported by the API server and the placer, sends the
//! resulting commands to the placer, and publishes the new state.
//!
//! Runs on one thread. It never blocks on the API server, because requests are made by tasks of the
//! runtime.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use albacore_os::{HostRoot, raise_descriptor_limit};
use albacore_placer::{SubjectId, mapping_hash, read_workers};
use albacore_plan::{Enforcement, PlacementWarning};
use albacore_trial::SubjectSnapshot;

use crate::cluster_view::ClusterView;
use crate::desired::{DesiredPod, KillSwitch, NodeRules, PodAction};
use crate::detected_counts::DetectedCounts;
use crate::facts::{NodeFacts, PodFacts, Reason};
use crate::health::{SelfTest, health};
use crate::heartbeat::Heartbeat;
use crate::latency_reports::{LatencyReports, LatestLatency};
use crate::limits::{
    DEBOUNCE, ITERATION_PERIOD, PREVIOUS_REPORT_TIME_MAX, REPORT_POLL, SHUTDOWN_TIME_MAX,
    TABLE_PAUSE,
};
use crate::opted_in_pod::OptedInPod;
use crate::placed_pods::PlacedPods;
use crate::placer_stats::{PlacerStats, SubjectStats};
use crate::placer_supervisor::PlacerSupervisor;
use crate::publisher::Publisher;
use crate::slot_snapshot::SlotSnapshot;
use crate::throttling::ThrottlingMonitor;
use crate::trials::Trials;
use crate::waker::WakeReceiver;

/// Reason of each pod whose masks are given back because the agent stops.
const STOPPED: &str = "the agent stopped and restored its masks";

/// Reason of a pod whose label or annotation was removed.
const OPTED_OUT: &str = "the pod no longer has a label or annotation of albacore.dev";

/// Options from the command line.
pub(crate) struct LoopOptions {
    pub(crate) host: HostRoot,
    /// `--enforcement`, before the self-test.
    pub(crate) enforcement: Enforcement,
    pub(crate) heartbeat: PathBuf,
}

/// Inputs of the loop other than the kernel and the placer.
pub(crate) struct LoopInputs {
    pub(crate) cluster: Arc<ClusterView>,
    pub(crate) latency_reports: Option<LatencyReports>,
    /// Set to end the loop; the setter also has to wake the loop.
    pub(crate) stop: Arc<AtomicBool>,
}

/// Progress of the initial sync: the API server's lists and the report of the previous agent.
#[derive(Debug)]
struct Startup {
    began: Instant,
    is_synced: bool,
}

/// State of the loop. Nothing in it must survive a restart, because it is rebuilt from the kernel
/// and the API server.
pub(crate) struct ReconcileLoop {
    options: LoopOptions,
    inputs: LoopInputs,
    self_test: SelfTest,
    startup: Startup,
    desired: Vec<DesiredPod>,
    /// Pods of this node that opted out with the last change.
    opted_out: Vec<DesiredPod>,
    placed: PlacedPods,
    placer: PlacerSupervisor,
    slots: SlotSnapshot,
    throttling: ThrottlingMonitor,
    counts: DetectedCounts,
    trials: Trials,
    publisher: Publisher,
    heartbeat: Heartbeat,
}

impl ReconcileLoop {
    /// Runs the self-test, but does not place anything yet.
    pub(crate) fn new(
        options: LoopOptions,
        inputs: LoopInputs,
        placer: PlacerSupervisor,
        publisher: Publisher,
    ) -> Self {
        if let Err(error) = raise_descriptor_limit() {
            tracing::warn!(%error, "the limit of open files cannot be raised");
        }
        let self_test = SelfTest::run(&options.host, options.enforcement);
        tracing::info!(?self_test, "self-test");
        Self {
            placed: PlacedPods::new(options.host.clone()),
            options,
            inputs,
            self_test,
            startup: Startup {
                began: Instant::now(),
                is_synced: false,
            },
            desired: Vec::new(),
            opted_out: Vec::new(),
            placer,
            slots: SlotSnapshot::default(),
            throttling: ThrottlingMonitor::default(),
            counts: DetectedCounts::default(),
            trials: Trials::default(),
            publisher,
            heartbeat: Heartbeat::default(),
        }
    }

    /// Reconciles until the stop flag is set, then gives every mask back.
    pub(crate) fn run(mut self, receiver: &WakeReceiver) {
        // bound: one iteration per wake-up, at least DEBOUNCE apart, and one per ITERATION_PERIOD.
        while !self.inputs.stop.load(Ordering::Acquire) {
            let is_cluster_changed = receiver.take_cluster_change();
            let now = Instant::now();
            self.reconcile_once(is_cluster_changed, now);
            if !receiver.wait(self.pause(now)) {
                break;
            }
            std::thread::sleep(DEBOUNCE);
        }
        self.shut_down();
    }

    /// How long to wait for a wake-up until the next timer expires.
    fn pause(&self, now: Instant) -> Duration {
        let version = self.placer.stats().lock().version;
        let is_behind = self.placer.is_running() && self.slots.is_behind(version);
        let due = [
            is_behind.then(|| self.slots.next_read(now)),
            self.trials.is_waiting().then(|| now + REPORT_POLL),
            self.placed.needs_sync().then(|| now + TABLE_PAUSE),
            self.publisher.next_params(now),
            self.placed.next_lookup(),
            self.heartbeat.due(),
            self.trials.next(),
            self.counts.next(),
        ];
        let first = due.into_iter().flatten().min();
        let pause = first.map_or(ITERATION_PERIOD, |at| at.saturating_duration_since(now));
        pause.clamp(DEBOUNCE, ITERATION_PERIOD)
    }

    fn reconcile_once(&mut self, is_cluster_changed: bool, now: Instant) {
        let is_first = !self.startup.is_synced;
        if let Err(waits_for) = self.check_synced(now) {
            self.beat(waits_for, now);
            return;
        }
        self.ensure_placer(now);
        let is_trial_changed = self.advance_trials(now);
        let is_count_changed = self.update_counts(now);
        let is_input_changed =
            is_cluster_changed || is_first || is_trial_changed || is_count_changed;
        if is_input_changed {
            self.update_desired(now);
        }
        let is_placement_changed = self.sync_placed(is_input_changed, now);
        let is_table_changed = self.read_slots(is_placement_changed, now);
        let is_throttling_read = self.read_throttling(now);
        if is_placement_changed || is_table_changed || is_throttling_read || is_input_changed {
            self.publish(now);
        }
        self.publisher.send_params(now);
        self.beat("works", now);
    }

    fn beat(&mut self, state: &str, now: Instant) {
        self.heartbeat.beat(&self.options.heartbeat, state, now);
    }

    /// Nothing is placed or given back before the pods and deployments of this node are known, and
    /// (for a bounded time) the report of the previous agent.
    fn check_synced(&mut self, now: Instant) -> Result<(), &'static str> {
        if !self.inputs.cluster.is_synced() {
            self.startup.is_synced = false;
            return Err("waits for the API server");
        }
        if self.startup.is_synced {
            return Ok(());
        }
        match self.inputs.cluster.previous_report() {
            Some(pods) if self.enforcement() == Enforcement::Enforce => {
                self.counts.adopt_previous(&pods);
                self.placed.adopt_previous(pods);
            }
            Some(_) => {}
            None if now.duration_since(self.startup.began) < PREVIOUS_REPORT_TIME_MAX => {
                return Err("waits for its own report");
            }
            None => tracing::warn!("the report of the previous agent cannot be read"),
        }
        self.startup.is_synced = true;
        Ok(())
    }

    /// `--enforcement`, or `Observe` if this process cannot write masks.
    fn enforcement(&self) -> Enforcement {
        let Self {
            self_test, options, ..
        } = self;
        self_test.enforcement(&options.host, options.enforcement)
    }

    /// Starts a placer if none is running; subjects of a placer that ended are dropped.
    fn ensure_placer(&mut self, now: Instant) {
        if self.placer.reap() {
            self.placed.clear();
            self.slots.clear();
        }
        if let Some(machine) = self.placer.start(now) {
            self.slots.set_machine(machine);
            self.placed.request_sync();
        }
    }

    /// Adds the samples that are due to their trials; returns true if a window began or ended.
    fn advance_trials(&mut self, now: Instant) -> bool {
        // Read in every iteration: a report received before a sample is due is not used for it.
        let reports = self.inputs.latency_reports.as_mut();
        let latest = reports.map_or_else(LatestLatency::new, |reports| {
            reports.read(|uid| self.trials.uses_latency_reports(uid))
        });
        let (placed, slots, host) = (&self.placed, &self.slots, &self.options.host);
        let read = |desired: &DesiredPod| {
            let id = placed.get(&desired.pod.uid)?.id;
            let state = slots.state(id);
            let usage = read_workers(host, &slots.worker_pids(id), state)?;
            let mapping = match &desired.action {
                PodAction::Place { policy, .. } => mapping_hash(policy, slots.rows(id), state?),
                _ => None,
            };
            Some(SubjectSnapshot { usage, mapping })
        };
        self.trials.advance(&self.desired, &latest, read, now)
    }

    /// Updates the detected worker and thread counts; returns true if counts in force changed.
    fn update_counts(&mut self, now: Instant) -> bool {
        let (placed, slots) = (&self.placed, &self.slots);
        let observed = |desired: &DesiredPod| {
            let id = placed.get(&desired.pod.uid)?.id;
            slots.state(id)?.shape
        };
        self.counts.update(&self.desired, observed, now)
    }

    fn update_desired(&mut self, now: Instant) {
        let enforcement = self.enforcement();
        let desired = self.inputs.cluster.desired_pods(enforcement);
        let before = std::mem::replace(&mut self.desired, desired);
        self.opted_out = opted_out(before, &self.desired, &self.inputs.cluster);
        // Counts that the previous agent detected apply to a pod from its first iteration on.
        self.counts.update(&self.desired, |_| None, now);
        self.counts.apply(&mut self.desired);
        self.trials.apply(&mut self.desired, now);
    }

    /// Reconciles the placer's subjects with the desired state; returns true if something may have
    /// changed.
    fn sync_placed(&mut self, is_input_changed: bool, now: Instant) -> bool {
        let Some(placer) = self.placer.handle() else {
            self.placed.request_sync();
            return is_input_changed;
        };
        let ended = std::mem::take(&mut self.placer.stats().lock().ended);
        self.placed.remove_ended(&ended);
        let is_due = self.placed.next_lookup().is_some_and(|at| at <= now);
        if !(is_input_changed || is_due || self.placed.needs_sync() || !ended.is_empty()) {
            return false;
        }
        let before = self.placed.all().clone();
        let restored = self.placed.sync(&self.desired, placer, now);
        for id in &ended {
            self.placer.stats().lock().remove(*id);
        }
        for pod in before.values().filter(|pod| !self.placed.has(pod.id)) {
            self.placer.stats().lock().remove(pod.id);
            self.slots.remove(pod.id);
        }
        let known = self.desired.iter().chain(&self.opted_out);
        self.publisher.record_restored(known, restored);
        before != *self.placed.all() || !ended.is_empty() || is_due
    }

    fn read_slots(&mut self, is_placement_changed: bool, now: Instant) -> bool {
        let Some(placer) = self.placer.handle() else {
            return false;
        };
        let version = self.placer.stats().lock().version;
        let metrics = self.publisher.agent_metrics();
        self.slots
            .refresh(placer, version, is_placement_changed, metrics, now)
    }

    fn read_throttling(&mut self, now: Instant) -> bool {
        let cgroups = self.placed.all().iter();
        let cgroups = cgroups.map(|(uid, pod)| (uid, &pod.cgroup));
        self.throttling.refresh(&self.options.host, cgroups, now)
    }

    fn publish(&mut self, now: Instant) {
        let facts = self.facts();
        self.publisher.publish(&facts, &self.inputs.cluster, now);
    }

    fn facts(&self) -> NodeFacts {
        let stats = self.placer.stats().lock().clone();
        let rules = NodeRules {
            enforcement: self.options.enforcement,
            kill_switch: self.inputs.cluster.kill_switch(),
        };
        let pods = self.desired.iter().map(|pod| self.pod_facts(pod, &stats));
        NodeFacts {
            pods: pods.collect(),
            topology: self.slots.topology,
            machine: self.slots.machine.clone(),
            spawns: stats.spawns,
            drifts: stats.drifts,
            health: health(&self.options.host, &self.self_test, rules, &stats),
            verified_at: self.slots.verified_at.clone(),
        }
    }

    fn pod_facts(&self, desired: &DesiredPod, stats: &PlacerStats) -> PodFacts {
        let uid = &desired.pod.uid;
        let id = self.placed.get(uid).map(|pod| pod.id);
        PodFacts {
            desired: desired.clone(),
            is_placed: id.is_some(),
            not_placed: self.placed.not_placed(uid).cloned(),
            stats: self.subject_stats(id, stats),
            state: id.and_then(|id| self.slots.state(id)).cloned(),
            rows: id
                .map(|id| self.slots.rows(id).to_vec())
                .unwrap_or_default(),
            throttling: self.throttling.of(uid),
            trial: self.trials.facts(uid),
        }
    }

    /// The stats of a subject, completed from its state in the placer.
    fn subject_stats(&self, id: Option<SubjectId>, stats: &PlacerStats) -> SubjectStats {
        let found = id.and_then(|id| stats.subjects.get(&id)).cloned();
        let mut found = found.unwrap_or_default();
        if let Some(state) = id.and_then(|id| self.slots.state(id)) {
            found.widened = state.widened;
            let is_inherited = |warning: &PlacementWarning| {
                matches!(warning, PlacementWarning::InheritedAffinity { .. })
            };
            found.is_inherited = state.warnings.iter().any(is_inherited);
        }
        found
    }

    /// Gives every mask back and publishes the last status.
    fn shut_down(mut self) {
        let now = Instant::now();
        for desired in &mut self.desired {
            desired.action = PodAction::release(STOPPED);
        }
        if let Some(placer) = self.placer.handle() {
            // bound: COMMANDS_MAX pods per iteration, SHUTDOWN_TIME_MAX in total; the placer gives
            // back the remaining masks when it stops.
            while !self.placed.all().is_empty() && now.elapsed() < SHUTDOWN_TIME_MAX {
                let restored = self.placed.sync(&self.desired, placer, now);
                self.publisher
                    .record_restored(self.desired.iter(), restored);
            }
        }
        for error in &self.placer.stop().errors {
            tracing::warn!(error, "cannot restore a mask");
        }
        self.slots.clear();
        let mut facts = self.facts();
        if self.inputs.cluster.kill_switch() == KillSwitch::Absent {
            facts.health.not_enforcing = Some(Reason::new("Stopped", STOPPED));
        }
        self.publisher.publish_last(&facts);
    }
}

/// The pods of `before` that are still on the node but are no longer opted in.
fn opted_out(
    before: Vec<DesiredPod>,
    desired: &[DesiredPod],
    cluster: &ClusterView,
) -> Vec<DesiredPod> {
    let uids: BTreeSet<&str> = desired.iter().map(|d| d.pod.uid.as_str()).collect();
    let has_opted_out = |pod: &OptedInPod| {
        !uids.contains(pod.uid.as_str()) && !pod.has_ended && cluster.has_pod(&pod.key, &pod.uid)
    };
    let opted_out = before
        .into_iter()
        .filter(|desired| has_opted_out(&desired.pod));
    opted_out
        .map(|desired| DesiredPod {
            action: PodAction::release(OPTED_OUT),
            ..desired
        })
        .collect()
}
