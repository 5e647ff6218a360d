//! Routing: selection of a pod for each request.

use albacore_batching::Nanos;
use albacore_random::Xoshiro256;

use super::pods::Report;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// One scheduler has the workers of all pods.
    Central,
    Random,
    RoundRobin,
    /// The pod with the fewest unanswered requests of the same router.
    LeastRequest,
    /// Of two randomly drawn pods, the one with fewer open requests at this time.
    TwoChoices,
    /// As `TwoChoices`, with the open requests in the pods' last reports.
    TwoChoicesStale,
    /// In proportion to rate / (utilization + share of errors), like gRPC clients with ORCA load
    /// reports (gRFC A58). The utilization is [`albacore_batching::load_factor`].
    OrcaLoadFactor,
    /// The same; the utilization is the work of the answered requests in batches of the drop rule's
    /// target size, as a share of the workers' capacity.
    OrcaWork,
}

impl Routing {
    /// All routings, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Central,
        Self::Random,
        Self::RoundRobin,
        Self::LeastRequest,
        Self::TwoChoices,
        Self::TwoChoicesStale,
        Self::OrcaLoadFactor,
        Self::OrcaWork,
    ];

    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Central => "central",
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::LeastRequest => "least-request",
            Self::TwoChoices => "p2c",
            Self::TwoChoicesStale => "p2c-stale",
            Self::OrcaLoadFactor => "orca",
            Self::OrcaWork => "orca-work",
        }
    }

    /// The routing of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|routing| routing.name() == name)
    }

    /// Whether every pod gets the same rate, regardless of its speed.
    pub(super) fn is_even(self) -> bool {
        matches!(self, Self::Random | Self::RoundRobin)
    }
}

/// Routers' view of a pod.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownPod {
    pub(super) report: Option<Report>,
    /// Time since which it has reported a weight.
    since: Option<Nanos>,
    weight: f64,
}

/// Routers' view of all pods.
#[derive(Clone, Debug)]
pub(super) struct KnownPods {
    pods: Vec<KnownPod>,
    /// Indices of pods believed to be up, ascending.
    up: Vec<usize>,
}

impl KnownPods {
    /// All pods are up.
    pub(super) fn new(pods: usize) -> Self {
        let known = KnownPod {
            weight: 1.0,
            ..KnownPod::default()
        };
        Self {
            pods: vec![known; pods],
            up: (0..pods).collect(),
        }
    }

    /// Records a detected failure or restart of a pod, and discards its last report.
    pub(super) fn notice(&mut self, pod: usize, is_up: bool) {
        self.pods[pod] = KnownPod::default();
        self.up.retain(|&known| known != pod);
        if is_up {
            self.up
                .insert(self.up.partition_point(|&known| known < pod), pod);
        }
    }

    pub(super) fn is_up(&self, pod: usize) -> bool {
        self.up.binary_search(&pod).is_ok()
    }

    pub(super) fn reported(&mut self, pod: usize, report: Report, now: Nanos) {
        let known = &mut self.pods[pod];
        if report.weight.is_some() && known.since.is_none() {
            known.since = Some(now);
        }
        // A report without load does not change the weight.
        let weight = known.report.take().and_then(|last| last.weight);
        known.report = Some(Report {
            weight: report.weight.or(weight),
            ..report
        });
    }

    /// Computes the weights as multiples of their mean, so that credits of routers stay valid. A
    /// pod without a weight gets the mean of the others; with fewer than two weights all are equal.
    pub(super) fn weigh(&mut self, blackout: Nanos, now: Nanos) {
        let own = |known: &KnownPod| {
            let since = known.since?;
            let weight = known.report.as_ref()?.weight?;
            (now.saturating_sub(since) >= blackout).then_some(weight)
        };
        let weights: Vec<f64> = self
            .up
            .iter()
            .filter_map(|&pod| own(&self.pods[pod]))
            .collect();
        let is_weighed = weights.len() >= 2;
        let mean = weights.iter().sum::<f64>() / weights.len().max(1) as f64;
        for known in &mut self.pods {
            known.weight = match is_weighed {
                true => own(known).map_or(1.0, |weight| weight / mean),
                false => 1.0,
            };
        }
    }

    /// A randomly drawn pod other than `pod` that reported that it can answer a request of this
    /// model within this time.
    pub(super) fn peer(
        &self,
        pod: usize,
        model: usize,
        within: Nanos,
        random: &mut Xoshiro256,
    ) -> Option<usize> {
        let can = |&&peer: &&usize| {
            let report = self.pods[peer].report.as_ref();
            let after = report.and_then(|report| report.answers_after.get(model));
            peer != pod && after.is_some_and(|&after| after <= within)
        };
        let count = self.up.iter().filter(can).count();
        match count {
            0 => None,
            _ => self
                .up
                .iter()
                .filter(can)
                .nth(below(random, count))
                .copied(),
        }
    }
}

/// A client or proxy.
#[derive(Clone, Debug)]
pub(super) struct Router {
    /// Its unanswered requests at each pod.
    open: Vec<u64>,
    /// Round-robin counter.
    turn: usize,
    /// Deficit of each pod relative to its weight.
    credits: Vec<f64>,
}

impl Router {
    /// Router number `number`; each one starts at another pod.
    pub(super) fn new(number: usize, pods: usize) -> Self {
        Self {
            open: vec![0; pods],
            turn: number,
            credits: vec![0.0; pods],
        }
    }

    /// Chooses the pod of a request and counts it there; `None` if all are known to be down.
    /// `open_at` returns the current number of open requests of a pod.
    pub(super) fn choose(
        &mut self,
        routing: Routing,
        known: &KnownPods,
        random: &mut Xoshiro256,
        open_at: impl Fn(usize) -> u64,
    ) -> Option<usize> {
        let up = known.up.as_slice();
        if up.is_empty() {
            return None;
        }
        let open_then = |pod: usize| known.pods[pod].report.as_ref().map_or(0, |r| r.open);
        let pod = match routing {
            Routing::Central | Routing::RoundRobin => self.round_robin(up),
            Routing::Random => up[below(random, up.len())],
            Routing::LeastRequest => self.least_request(up),
            Routing::TwoChoices => better_of_two(up, random, open_at),
            Routing::TwoChoicesStale => better_of_two(up, random, open_then),
            Routing::OrcaLoadFactor | Routing::OrcaWork => self.by_weight(known),
        };
        self.open[pod] += 1;
        Some(pod)
    }

    /// A request sent to this pod was answered, or failed.
    pub(super) fn finish_request(&mut self, pod: usize) {
        self.open[pod] -= 1;
    }

    fn round_robin(&mut self, up: &[usize]) -> usize {
        self.turn += 1;
        up[self.turn % up.len()]
    }

    /// Ties between pods are broken round-robin.
    fn least_request(&mut self, up: &[usize]) -> usize {
        self.turn += 1;
        let first = self.turn % up.len();
        let order = up[first..].iter().chain(&up[..first]);
        let least = order.min_by_key(|&&pod| self.open[pod]);
        least.copied().unwrap_or(up[first])
    }

    fn by_weight(&mut self, known: &KnownPods) -> usize {
        let mut sum = 0.0;
        let mut best = known.up[0];
        for &pod in &known.up {
            self.credits[pod] += known.pods[pod].weight;
            sum += known.pods[pod].weight;
            if self.credits[pod] > self.credits[best] {
                best = pod;
            }
        }
        self.credits[best] -= sum;
        best
    }
}

fn better_of_two(up: &[usize], random: &mut Xoshiro256, open: impl Fn(usize) -> u64) -> usize {
    let first = below(random, up.len());
    // A different one, if there is one.
    let step = match up.len() {
        1 => 0,
        pods => 1 + below(random, pods - 1),
    };
    let (first, second) = (up[first], up[(first + step) % up.len()]);
    match open(second) < open(first) {
        true => second,
        false => first,
    }
}

/// Uniform in [0, `end`), for `end` above 0.
pub(super) fn below(random: &mut Xoshiro256, end: usize) -> usize {
    ((u128::from(random.draw()) * end as u128) >> 64) as usize
}
