//! The rules that a mapping can break, and sets of them.

/// A rule of the design, section 4, that a mapping can break.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// (2) Threads of equal rank on distinct cpus; for W > C at most ceil(W/C) on one.
    EqualRanks,
    /// (3) Threads of one worker on distinct cpus; for T > C at most ceil(T/C) on one.
    OwnThreads,
    /// (8) Every cpu holds floor(WT/C) to ceil(WT/C) threads; where cores differ in speed, as many
    /// as minimize the fill levels of threads.
    CpuVolume,
    /// (8+) Every core holds floor(WT/P) to ceil(WT/P) threads, if all cores are equally fast.
    CoreVolume,
    /// At most ceil(W/P) mains on one core.
    MainsPerCore,
    /// No main on a core that is slower than the fastest.
    FastMains,
    /// (12) Limit on the cpus that hold both ceil(WT/C) threads and a main.
    FullCpus,
    /// (12+) Limit on the cores that hold both ceil(WT/P) threads and a main.
    FullCores,
}

impl Rule {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 8] = [
        Self::EqualRanks,
        Self::OwnThreads,
        Self::CpuVolume,
        Self::CoreVolume,
        Self::MainsPerCore,
        Self::FastMains,
        Self::FullCpus,
        Self::FullCores,
    ];

    /// Its name as in [`Relaxation::rule`](crate::Relaxation::rule).
    pub fn name(self) -> &'static str {
        match self {
            Self::EqualRanks => "2",
            Self::OwnThreads => "3",
            Self::CpuVolume => "8",
            Self::CoreVolume => "8+",
            Self::MainsPerCore => "mains-per-core",
            Self::FastMains => "fast-mains",
            Self::FullCpus => "12",
            Self::FullCores => "12+",
        }
    }
}

/// A set of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RuleSet(u8);

impl RuleSet {
    /// Adds `rule` if `is_in`.
    pub(crate) fn insert_if(&mut self, rule: Rule, is_in: bool) {
        self.0 |= u8::from(is_in) << rule as u8;
    }

    /// The set without `rule`.
    pub(crate) fn without(self, rule: Rule) -> Self {
        Self(self.0 & !(1 << rule as u8))
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The only rule in the set, if there is exactly one.
    pub(crate) fn only(self) -> Option<Rule> {
        let mut rules = self.iter();
        rules.next().filter(|_| rules.next().is_none())
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Rule> {
        Rule::ALL
            .into_iter()
            .filter(move |&rule| self.0 >> rule as u8 & 1 == 1)
    }
}
