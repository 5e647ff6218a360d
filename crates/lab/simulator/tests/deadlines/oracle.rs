//! The algorithm in its simplest form, without regard to speed: lists, and linear searches. It
//! shares no code with the crate; both must produce the same results.

/// Rules of a queue; times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) alpha: i128,
    pub(crate) beta: i128,
    pub(crate) objective: i128,
    pub(crate) release: Release,
    /// Target rows of the drop rule; 1 is the head rule.
    pub(crate) target: i128,
    pub(crate) rows_max: i128,
    pub(crate) requests_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    Deferred { early: i128, window: Option<i128> },
    Timeout { delay: i128 },
}

/// An action of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Batch {
        start: i128,
        end: i128,
        worker: usize,
        queue: usize,
        keys: Vec<u64>,
        /// Time of the decision.
        at: i128,
    },
    Drop {
        at: i128,
        queue: usize,
        key: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) key: u64,
    pub(crate) arrival: i128,
    pub(crate) rows: i128,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    requests: usize,
    rows: i128,
    exec: i128,
    latest: i128,
    stands_by: bool,
}

pub(crate) struct Oracle {
    pub(crate) control: i128,
    pub(crate) data: i128,
    pub(crate) rules: Vec<Rules>,
    queues: Vec<Vec<Request>>,
    candidates: Vec<Option<Candidate>>,
    free: Vec<i128>,
    pub(crate) done: Vec<Done>,
}

impl Oracle {
    pub(crate) fn new(rules: Vec<Rules>, workers: usize, control: i128, data: i128) -> Self {
        Self {
            control,
            data,
            queues: vec![Vec::new(); rules.len()],
            candidates: vec![None; rules.len()],
            free: vec![0; workers],
            done: Vec::new(),
            rules,
        }
    }

    fn l(&self, queue: usize, rows: i128) -> i128 {
        self.rules[queue].alpha * rows + self.rules[queue].beta
    }

    fn delay(&self, rows: i128) -> i128 {
        self.control + self.data * rows
    }

    fn is_in_time(&self, queue: usize, rows: i128, arrival: i128, now: i128, free: i128) -> bool {
        let start = (now + self.delay(rows)).max(free);
        start + self.l(queue, rows) <= arrival + self.rules[queue].objective
    }

    fn rows(requests: &[Request]) -> i128 {
        requests.iter().map(|request| request.rows).sum()
    }

    fn drop_heads(&mut self, queue: usize, now: i128, free: i128) {
        let waiting = self.queues[queue].clone();
        let suffix_rows = (0..waiting.len())
            .map(|i| (Self::rows(&waiting[i..]), waiting[i].arrival))
            .find(|&(rows, arrival)| self.is_in_time(queue, rows, arrival, now, free))
            .map_or(0, |(rows, _)| rows);
        let aim = suffix_rows
            .min(self.rules[queue].target)
            .min(self.rules[queue].rows_max)
            .max(1);
        for head in waiting {
            if self.is_in_time(queue, aim.max(head.rows), head.arrival, now, free) {
                break;
            }
            self.queues[queue].remove(0);
            self.done.push(Done::Drop {
                at: now,
                queue,
                key: head.key,
            });
        }
    }

    fn update(&mut self, queue: usize, now: i128, free: i128) {
        self.drop_heads(queue, now, free);
        let waiting = &self.queues[queue];
        self.candidates[queue] = waiting.first().map(|head| {
            let rules = &self.rules[queue];
            let mut requests = 1;
            for n in 1..=waiting.len() {
                let rows = Self::rows(&waiting[..n]);
                let is_within = rows <= rules.rows_max && n <= rules.requests_max;
                if is_within && self.is_in_time(queue, rows, head.arrival, now, free) {
                    requests = n;
                }
            }
            let rows = Self::rows(&waiting[..requests]);
            let deadline = head.arrival + rules.objective;
            let earliest = (now + self.delay(rows)).max(free);
            let asked = match rules.release {
                _ if rows >= rules.rows_max || requests == rules.requests_max => earliest,
                // The next one does not fit.
                _ if requests < waiting.len() && rows + waiting[requests].rows > rules.rows_max => {
                    earliest
                }
                Release::Deferred { .. } if requests < waiting.len() => earliest,
                Release::Deferred { early, window } => {
                    let opens = deadline - self.l(queue, rows + 1) - early;
                    window.map_or(opens, |window| opens.min(head.arrival + window))
                }
                Release::Timeout { delay } => head.arrival + delay,
            };
            Candidate {
                requests,
                rows,
                exec: asked.max(earliest),
                latest: deadline - self.l(queue, rows),
                stands_by: false,
            }
        });
    }

    /// A request arrives; the clock is at its time.
    pub(crate) fn arrive(&mut self, queue: usize, request: Request) {
        self.queues[queue].push(request);
        self.update(queue, request.arrival, 0);
    }

    pub(crate) fn set_rules(&mut self, queue: usize, rules: Rules, now: i128) {
        self.rules[queue] = rules;
        self.update(queue, now, 0);
    }

    pub(crate) fn withdraw(&mut self, queue: usize, key: u64, now: i128) {
        let before = self.queues[queue].len();
        self.queues[queue].retain(|request| request.key != key);
        if self.queues[queue].len() < before {
            self.update(queue, now, 0);
        }
    }

    fn wakes(&self, candidate: &Candidate) -> i128 {
        candidate.exec - self.delay(candidate.rows)
    }

    /// Time at which the first free worker should look for a candidate.
    fn worker_timer(&self) -> Option<i128> {
        let standing = self.candidates.iter().flatten().filter(|c| c.stands_by);
        let free = *self.free.iter().min()?;
        let span = standing.clone().map(|c| self.delay(c.rows)).max()?;
        let can = standing.clone().any(|c| c.latest >= free);
        can.then_some(free - span)
    }

    /// Time of the next internal event.
    pub(crate) fn next(&self) -> Option<i128> {
        let mut times: Vec<i128> = self.worker_timer().into_iter().collect();
        for candidate in self.candidates.iter().flatten() {
            if !candidate.stands_by {
                times.push(self.wakes(candidate));
            }
            if candidate.stands_by || candidate.exec > candidate.latest {
                times.push(candidate.latest + 1);
            }
        }
        times.into_iter().min()
    }

    fn dispatch(&mut self, queue: usize, worker: usize, now: i128) {
        let free = self.free[worker];
        self.update(queue, now, free);
        if let Some(candidate) = self.candidates[queue] {
            let earliest = (now + self.delay(candidate.rows)).max(free);
            if candidate.exec <= earliest {
                let batch: Vec<Request> = self.queues[queue].drain(..candidate.requests).collect();
                let end = candidate.exec + self.l(queue, candidate.rows);
                self.free[worker] = end;
                self.done.push(Done::Batch {
                    start: candidate.exec,
                    end,
                    worker,
                    queue,
                    keys: batch.iter().map(|request| request.key).collect(),
                    at: now,
                });
            }
        }
        self.update(queue, now, 0);
    }

    /// Processes every internal event at this time.
    pub(crate) fn act(&mut self, now: i128) {
        while self.open_a_window(now) || self.serve_a_worker(now) || self.renew(now) {}
    }

    fn open_a_window(&mut self, now: i128) -> bool {
        let due = (0..self.candidates.len())
            .filter_map(|queue| Some((queue, self.candidates[queue]?)))
            .filter(|(_, c)| !c.stands_by && self.wakes(c) <= now)
            .min_by_key(|(queue, c)| (self.wakes(c), *queue));
        let Some((queue, candidate)) = due else {
            return false;
        };
        let by = candidate.exec.max(now);
        match self.free.iter().position(|&free| free <= by) {
            Some(worker) => self.dispatch(queue, worker, now),
            None => {
                self.candidates[queue] = Some(Candidate {
                    stands_by: true,
                    ..candidate
                });
            }
        }
        true
    }

    fn serve_a_worker(&mut self, now: i128) -> bool {
        if self.worker_timer().is_none_or(|time| time > now) {
            return false;
        }
        let earliest = *self.free.iter().min().unwrap();
        let is_due = |free: i128| free <= now.max(earliest);
        let worker = self.free.iter().position(|&free| is_due(free)).unwrap();
        let free = self.free[worker].max(now);
        let best = (0..self.candidates.len())
            .filter_map(|queue| Some((queue, self.candidates[queue]?)))
            .filter(|(_, c)| c.stands_by && c.latest >= free)
            .min_by_key(|(queue, c)| (c.latest, *queue));
        match best {
            Some((queue, _)) => self.dispatch(queue, worker, now),
            None => return false,
        }
        true
    }

    fn renew(&mut self, now: i128) -> bool {
        let expired = (0..self.candidates.len())
            .filter_map(|queue| Some((queue, self.candidates[queue]?)))
            .filter(|(_, c)| (c.stands_by || c.exec > c.latest) && c.latest < now)
            .min_by_key(|(queue, c)| (c.latest, *queue));
        match expired {
            Some((queue, _)) => self.update(queue, now, 0),
            None => return false,
        }
        true
    }
}
