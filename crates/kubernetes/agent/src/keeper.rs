//! The loop: takes in what the API server and the placer told, orders what follows, and makes the
//! report.
//!
//! One thread. It never waits for the API server: what goes there is handed to tasks that do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use albacore_cluster::{Events, Metrics};
use albacore_os::{HostRoot, raise_descriptor_limit};
use albacore_placer::{Config, Row, SubjectId, SubjectState};
use albacore_plan::{Enforcement, Note};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;

use crate::events::{Teller, restored};
use crate::facts::{Facts, PodFacts};
use crate::feed::Feed;
use crate::fleet::{Fleet, Turn};
use crate::health::{SelfTest, health};
use crate::heartbeat::Heartbeat;
use crate::journal::{Journal, Story};
use crate::limits::{
    ANSWER_TIME_MAX, FAREWELL_TIME_MAX, FORMER_TIME_MAX, GATHER, PLACER_PAUSE_MAX, REPORT_LOOK,
    STRAIN_PERIOD, TABLE_PAUSE, TABLE_PERIOD, TURN_PERIOD,
};
use crate::metrics::Counts;
use crate::placing::{Placing, SharedJournal, Wake, category};
use crate::reports::{Latest, Reports};
use crate::status::Reporter;
use crate::strain::Strains;
use crate::trials::{self, Trials};
use crate::view::{Bell, Ears, View};
use crate::wish::{Aim, NodeRules, Switch, Wish};
use crate::writer::Wanted;

/// What the loop is made of.
pub(crate) struct Setup {
    pub(crate) host: HostRoot,
    pub(crate) flag: Enforcement,
    pub(crate) hears_births: bool,
    pub(crate) heartbeat: PathBuf,
    pub(crate) view: Arc<View>,
    pub(crate) feed: Option<Feed>,
    pub(crate) reports: Option<Reports>,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(crate) wanted: watch::Sender<Wanted>,
    pub(crate) counts: Counts,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) bell: Bell,
}

/// The loop's state. All of it can be lost: the next life reads it from the kernel and the API
/// server.
pub(crate) struct Keeper {
    setup: Setup,
    test: SelfTest,
    journal: SharedJournal,
    placing: Option<Placing>,
    placer_not_before: Option<Instant>,
    fleet: Fleet,
    wishes: Vec<Wish>,
    rows: BTreeMap<SubjectId, Vec<Row>>,
    states: BTreeMap<SubjectId, SubjectState>,
    rows_at: Option<Instant>,
    rows_version: u64,
    /// How often all masks had been read when that was last looked at, and the time of that look.
    sweeps: u64,
    verified_at: Option<Time>,
    strains: Strains,
    strains_at: Option<Instant>,
    is_unfinished: bool,
    is_unsynced: bool,
    begun: Instant,
    topology: u64,
    reporter: Reporter,
    teller: Teller,
    heart: Heartbeat,
    fed: Vec<albacore_settings::agent_stream::ServingPod>,
    trials: Trials,
}

impl Keeper {
    /// Looks at this process and the kernel; places nothing yet.
    pub(crate) fn new(setup: Setup) -> Self {
        if let Err(error) = raise_descriptor_limit() {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
        let test = SelfTest::run(&setup.host, setup.flag);
        tracing::info!(?test, "self-test");
        Self {
            fleet: Fleet::new(setup.host.clone()),
            setup,
            test,
            journal: SharedJournal::default(),
            placing: None,
            placer_not_before: None,
            wishes: Vec::new(),
            rows: BTreeMap::new(),
            states: BTreeMap::new(),
            rows_at: None,
            rows_version: 0,
            sweeps: 0,
            verified_at: None,
            strains: Strains::default(),
            strains_at: None,
            is_unfinished: true,
            is_unsynced: true,
            begun: Instant::now(),
            topology: 0,
            reporter: Reporter::default(),
            teller: Teller::default(),
            heart: Heartbeat::default(),
            fed: Vec::new(),
            trials: Trials::default(),
        }
    }

    /// Turns until it is told to stop; then gives every mask back.
    pub(crate) fn run(mut self, ears: &Ears) {
        // bound: a turn for each ring, GATHER apart, and for each TURN_PERIOD.
        while !self.setup.stop.load(Ordering::Acquire) {
            let has_news = ears.take_cluster_news();
            let now = Instant::now();
            self.turn(has_news, now);
            if !ears.wait(self.pause(now)) {
                break;
            }
            std::thread::sleep(GATHER);
        }
        self.farewell();
    }

    /// How long nothing has to be done if nobody rings.
    fn pause(&self, now: Instant) -> Duration {
        let is_behind = self.placing.is_some() && self.journal.lock().version != self.rows_version;
        let behind = is_behind.then(|| self.rows_at.map_or(now, |at| at + TABLE_PAUSE));
        let unfinished = self.is_unfinished.then(|| now + TABLE_PAUSE);
        let feed = self.setup.feed.as_ref().map(|feed| feed.next(now));
        let report = self.trials.is_waiting().then(|| now + REPORT_LOOK);
        let due = [
            behind,
            report,
            unfinished,
            feed,
            self.fleet.next_look(),
            self.heart.due(),
            self.trials.next(),
        ];
        let first = due.into_iter().flatten().min();
        let pause = first.map_or(TURN_PERIOD, |at| at.saturating_duration_since(now));
        pause.clamp(GATHER, TURN_PERIOD)
    }

    fn turn(&mut self, has_news: bool, now: Instant) {
        let has_news = has_news || self.is_unsynced;
        if self.is_unsynced && self.setup.view.is_synced() {
            match self.setup.view.former() {
                Some(former) if self.may_write() => self.fleet.follow_on(former),
                Some(_) => {}
                None if now.duration_since(self.begun) < FORMER_TIME_MAX => {
                    self.heart
                        .beat(&self.setup.heartbeat, "waits for its own report", now);
                    return;
                }
                None => tracing::warn!("the report of a former life cannot be read"),
            }
        }
        if !self.setup.view.is_synced() {
            // Nothing is placed and nothing given back before it is known what is wished for.
            self.is_unsynced = true;
            self.heart
                .beat(&self.setup.heartbeat, "waits for the API server", now);
            return;
        }
        self.is_unsynced = false;
        self.tend_placer(now);
        let has_news = self.tend_trials(now) || has_news;
        let is_changed = self.tend_fleet(has_news, now);
        let is_read = self.read_rows(is_changed, now);
        let is_strained = self.read_strains(now);
        if is_changed || is_read || is_strained || has_news {
            self.report(now);
        }
        self.feed(now);
        self.heart.beat(&self.setup.heartbeat, "works", now);
    }

    /// Whether this process may write masks at all, whatever it is asked to do.
    fn may_write(&self) -> bool {
        let flag = self.test.enforcement(&self.setup.host, self.setup.flag);
        flag == Enforcement::Enforce
    }

    /// Tells params what is new, or again what is so.
    fn feed(&mut self, now: Instant) {
        let Some(feed) = &mut self.setup.feed else {
            return;
        };
        if feed.wants(&self.fed, now) {
            self.setup.counts.note_cpu();
            let metrics = self.setup.metrics.text().unwrap_or_default();
            let metrics = metrics.trim_end().trim_end_matches("# EOF").to_owned();
            feed.write(self.fed.clone(), metrics, now);
        } else {
            feed.flush();
        }
    }

    /// Starts a placer where there is none.
    fn tend_placer(&mut self, now: Instant) {
        if self.placing.as_ref().is_some_and(Placing::has_ended) {
            tracing::error!("the placer has ended by itself; a new one adopts what it pinned");
            self.placing = None;
            self.fleet.forget_all();
            self.sweeps = 0;
            self.rows.clear();
            *self.journal.lock() = Journal::default();
        }
        if self.placing.is_some() || self.placer_not_before.is_some_and(|at| now < at) {
            return;
        }
        let bell = self.setup.bell.clone();
        let wake: Wake = Arc::new(move || bell.ring());
        let config = Config {
            host: self.setup.host.clone(),
            limit: None,
        };
        match Placing::start(config, self.setup.hears_births, self.journal.clone(), wake) {
            Ok(placing) => {
                self.topology = placing.topology;
                self.placing = Some(placing);
                self.is_unfinished = true;
            }
            Err(error) => {
                tracing::warn!(%error, "placing cannot begin; it is tried again");
                self.placer_not_before = Some(now + PLACER_PAUSE_MAX);
                self.journal.lock().trouble = Some((category(&error), error.to_string()));
            }
        }
    }

    /// Reads what the windows of trials came to, where one ends; true if another policy holds now.
    fn tend_trials(&mut self, now: Instant) -> bool {
        // Read in every turn: what was reported before a reading is due is not for that reading.
        let reports = self.setup.reports.as_mut();
        let latest = reports.map_or_else(Latest::new, |reports| {
            reports.read(|uid| self.trials.progress(uid).is_some())
        });
        let (fleet, states, rows) = (&self.fleet, &self.states, &self.rows);
        let host = &self.setup.host;
        let usage = |wish: &Wish| {
            let id = fleet.present().get(&wish.pod.uid)?.id;
            let own = rows.get(&id).into_iter().flatten();
            let workers: BTreeSet<_> = own.filter_map(|row| row.pid).collect();
            let workers: Vec<_> = workers.into_iter().collect();
            trials::read(host, &workers, states.get(&id))
        };
        self.trials.advance(&self.wishes, &latest, usage, now)
    }

    /// Brings the placer to what is wished for; true if something was done.
    fn tend_fleet(&mut self, has_news: bool, now: Instant) -> bool {
        if has_news {
            let flag = self.test.enforcement(&self.setup.host, self.setup.flag);
            self.wishes = self.setup.view.wishes(flag);
            self.trials.apply(&mut self.wishes, now);
        }
        let Some(placing) = &self.placing else {
            // The wishes wait until there is a placer.
            self.is_unfinished = true;
            return has_news;
        };
        let gone = std::mem::take(&mut self.journal.lock().gone);
        self.fleet.forget(&gone);
        let is_due = self.fleet.next_look().is_some_and(|at| at <= now);
        if !(has_news || is_due || self.is_unfinished || !gone.is_empty()) {
            return false;
        }
        let before = self.fleet.present().clone();
        let turn = self.fleet.follow(&self.wishes, &placing.handle, now);
        self.is_unfinished = turn.is_unfinished;
        let mut is_changed = before != *self.fleet.present() || !gone.is_empty();
        for id in gone {
            self.journal.lock().forget(id);
        }
        for has in before.values() {
            if !self.fleet.present().values().any(|p| p.id == has.id) {
                self.journal.lock().forget(has.id);
                self.rows.remove(&has.id);
                is_changed = true;
            }
        }
        self.tell_restored(turn);
        is_changed || is_due
    }

    fn tell_restored(&self, turn: Turn) {
        for (uid, back) in turn.restored {
            let Some(wish) = self.wishes.iter().find(|wish| wish.pod.uid == uid) else {
                continue;
            };
            let why = match &wish.aim {
                Aim::Leave { reason } | Aim::Keep { reason } => reason.as_str(),
                Aim::Place { .. } => continue,
            };
            let told = restored(&wish.pod.regarding, back.count, back.errors_total, why);
            self.setup.events.tell(told);
        }
    }

    /// Asks for all slots where something may be another; true if the answer is a new one.
    fn read_rows(&mut self, is_changed: bool, now: Instant) -> bool {
        let Some(placing) = &self.placing else {
            return false;
        };
        let age = self.rows_at.map(|at| now.duration_since(at));
        let version = self.journal.lock().version;
        let is_behind = version != self.rows_version || is_changed;
        let period = if is_behind { TABLE_PAUSE } else { TABLE_PERIOD };
        if age.is_some_and(|age| age < period) && !is_changed {
            return false;
        }
        let asked = placing.handle.table();
        let answer = asked.and_then(|pending| pending.wait(ANSWER_TIME_MAX));
        let Ok(Ok(table)) = answer else {
            self.rows_at = Some(now);
            return false;
        };
        let mut rows: BTreeMap<SubjectId, Vec<Row>> = BTreeMap::new();
        for mut row in table {
            // Ages differ at every look and are not reported.
            row.verified_micros_ago = row.verified_micros_ago.map(|_| 0);
            rows.entry(row.subject).or_default().push(row);
        }
        if let Ok(states) = placing.handle.states()
            && let Ok(states) = states.wait(ANSWER_TIME_MAX)
        {
            if let Some(state) = states.first() {
                // Cpus come and go (P25).
                self.topology = state.topology_hash;
            }
            let by_id = |state: SubjectState| (state.subject, state);
            self.states = states.into_iter().map(by_id).collect();
        }
        if let Ok(figures) = placing.handle.figures()
            && let Ok(figures) = figures.wait(ANSWER_TIME_MAX)
        {
            self.setup.counts.note(&figures);
            self.note_verification(figures.sweeps);
        }
        let is_new = rows != self.rows || version != self.rows_version;
        (self.rows, self.rows_at, self.rows_version) = (rows, Some(now), version);
        is_new
    }

    /// The placer has read all masks so often: time passes as verified only where that is more than
    /// before.
    fn note_verification(&mut self, sweeps: u64) {
        if sweeps != self.sweeps {
            self.sweeps = sweeps;
            let now = Timestamp::now();
            // Whole seconds: what Kubernetes keeps of a time.
            self.verified_at = Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
        }
    }

    /// Reads quotas and isolation of all pods once a period; true if it did.
    fn read_strains(&mut self, now: Instant) -> bool {
        let is_due = |at: Instant| now.duration_since(at) >= STRAIN_PERIOD;
        if !self.strains_at.is_none_or(is_due) {
            return false;
        }
        self.strains_at = Some(now);
        let present = self.fleet.present().iter();
        let present = present.map(|(uid, has)| (uid, &has.cgroup));
        self.strains.read(&self.setup.host, present);
        // The node itself is looked at in the same period.
        true
    }

    fn facts(&self) -> Facts {
        let journal = self.journal.lock().clone();
        let rules = NodeRules {
            enforcement: self.setup.flag,
            switch: self.setup.view.switch(),
        };
        let health = health(
            &self.setup.host,
            &self.test,
            self.setup.flag,
            rules,
            &journal,
        );
        let pods = self.wishes.iter().map(|wish| {
            let uid = &wish.pod.uid;
            let has = self.fleet.present().get(uid);
            PodFacts {
                wish: wish.clone(),
                is_present: has.is_some(),
                absence: self.fleet.absence(uid).cloned(),
                story: self.story(has.map(|has| has.id), &journal),
                state: has.and_then(|has| self.states.get(&has.id)).cloned(),
                rows: has
                    .and_then(|has| self.rows.get(&has.id))
                    .cloned()
                    .unwrap_or_default(),
                strain: self.strains.of(uid),
                withdrawn: self.trials.withdrawn(uid),
                trial: self.trials.progress(uid),
                is_trial_blind: self.trials.is_without_figures(uid),
            }
        });
        Facts {
            pods: pods.collect(),
            topology: self.topology,
            births: journal.births,
            drifts: journal.drifts,
            health,
            verified_at: self.verified_at.clone(),
        }
    }

    /// What was told of a subject, with what the placer itself counts.
    fn story(&self, id: Option<SubjectId>, journal: &Journal) -> Story {
        let told = id.and_then(|id| journal.stories.get(&id)).cloned();
        let mut story = told.unwrap_or_default();
        if let Some(state) = id.and_then(|id| self.states.get(&id)) {
            story.widened = state.widened;
            let is_inherited = |note: &Note| matches!(note, Note::InheritedAffinity { .. });
            story.is_inherited = state.notes.iter().any(is_inherited);
        }
        story
    }

    fn report(&mut self, now: Instant) {
        let facts = self.facts();
        let node = self.setup.view.node_reference();
        for happening in self.teller.happenings(&facts, &node, now) {
            self.setup.events.tell(happening);
        }
        self.setup.counts.note_facts(&facts);
        self.fed = crate::feed::pods(&facts.pods, |pod| {
            let pod = &pod.wish.pod;
            self.setup
                .view
                .deployment(&pod.key.namespace, &pod.deployment)
        });
        let status = self.reporter.status(&facts, &Time(Timestamp::now()));
        let wanted = Wanted {
            status: Some(status),
            node_uid: self.setup.view.node_uid(),
            deletions: self.setup.view.deletions(),
        };
        self.setup.wanted.send_if_modified(|before| {
            let differs = *before != wanted;
            if differs {
                *before = wanted;
            }
            differs
        });
    }

    /// Gives every mask back and says so.
    fn farewell(mut self) {
        let now = Instant::now();
        let leave = |wish: &mut Wish| {
            wish.aim = Aim::Leave {
                reason: "the agent stopped and gave its masks back".to_owned(),
            };
        };
        self.wishes.iter_mut().for_each(leave);
        if let Some(placing) = self.placing.take() {
            // bound: ORDERS_MAX pods each turn, FAREWELL_TIME_MAX in all; the placer gives back
            // what is left.
            while !self.fleet.present().is_empty() && now.elapsed() < FAREWELL_TIME_MAX {
                let turn = self.fleet.follow(&self.wishes, &placing.handle, now);
                self.tell_restored(turn);
            }
            let left = placing.stop();
            for error in &left.errors {
                tracing::warn!(error, "a mask could not be given back");
            }
        }
        self.rows.clear();
        let mut facts = self.facts();
        let text = "the agent stopped and gave its masks back".to_owned();
        if self.setup.view.switch() == Switch::Absent {
            facts.health.idle = Some(("Stopped", text));
        }
        let status = self.reporter.status(&facts, &Time(Timestamp::now()));
        self.setup
            .wanted
            .send_modify(|wanted| wanted.status = Some(status));
    }
}
