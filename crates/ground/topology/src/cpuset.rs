//! Cpu ids and sets of them, with the kernel's cpu list format (`0-3,8,10-11`) as text form.

use std::fmt;
use std::str::FromStr;

/// Kernel id of a logical cpu. Ids may have gaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(pub u16);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Error of parsing a cpu list.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CpuSetError {
    /// An element of the list is neither `N` nor `N-M`.
    #[error("{part:?} is not a cpu or a range of cpus: write a list such as 0-3,8")]
    NotARange {
        /// The invalid element.
        part: String,
    },
    /// `M-N` with M above N.
    #[error("the range {part:?} runs backwards: write the lower cpu first")]
    Backwards {
        /// The invalid element.
        part: String,
    },
    /// A cpu id above the kernel's maximum.
    #[error("cpu {cpu} is out of range: the largest cpu id is {}", CpuSet::MAX_ID)]
    TooLarge {
        /// The invalid id.
        cpu: u64,
    },
}

/// Reason why the cpus given by a user cannot be used; printed after the name of the option.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CpuSelectionError {
    #[error("is empty: give at least one of the cpus that this process may use, {allowed}")]
    Empty { allowed: CpuSet },
    #[error(
        "{chosen}: cpus {others} are not online or not allowed by the cpuset or mask of this \
         process; it may use {allowed}"
    )]
    NotAllowed {
        chosen: CpuSet,
        /// Those that are not allowed.
        others: CpuSet,
        allowed: CpuSet,
    },
}

/// A set of cpus: the cpuset of a container or the affinity mask of a thread.
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct CpuSet {
    /// Bit `i` of word `w` is cpu `64 w + i`. No trailing zero words, so that derived equality
    /// works.
    words: Vec<u64>,
}

impl CpuSet {
    /// The largest cpu id (NR_CPUS of all distribution kernels is at most 8192).
    pub const MAX_ID: u16 = 8191;

    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Number of cpus in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// True if `cpu` is in the set.
    pub fn contains(&self, cpu: CpuId) -> bool {
        let (w, b) = Self::place(cpu);
        self.words.get(w).is_some_and(|word| word & b != 0)
    }

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        let (w, b) = Self::place(cpu);
        if self.words.len() <= w {
            self.words.resize(w + 1, 0);
        }
        self.words[w] |= b;
    }

    /// Removes `cpu` if present.
    pub fn remove(&mut self, cpu: CpuId) {
        let (w, b) = Self::place(cpu);
        if let Some(word) = self.words.get_mut(w) {
            *word &= !b;
        }
        self.trim();
    }

    /// The cpus in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(w, &word)| {
            (0..64u16)
                .filter(move |b| word >> b & 1 == 1)
                .map(move |b| CpuId(w as u16 * 64 + b))
        })
    }

    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// The cpus that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self
            .words
            .iter()
            .zip(&other.words)
            .map(|(a, b)| a & b)
            .collect();
        Self { words }.trimmed()
    }

    /// The cpus that are in either set.
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() < other.words.len() {
            (other, self)
        } else {
            (self, other)
        };
        let mut words = long.words.clone();
        for (a, b) in words.iter_mut().zip(&short.words) {
            *a |= b;
        }
        Self { words }
    }

    /// The cpus of this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let words = self
            .words
            .iter()
            .enumerate()
            .map(|(i, a)| a & !other.words.get(i).copied().unwrap_or(0))
            .collect();
        Self { words }.trimmed()
    }

    /// True if every cpu of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Checks that a process with the allowed cpus `allowed` can use this set.
    ///
    /// # Errors
    /// The set is empty, or contains a cpu that is not allowed.
    pub fn check_selection(&self, allowed: &Self) -> Result<(), CpuSelectionError> {
        let others = self.difference(allowed);
        let allowed = allowed.clone();
        if self.is_empty() {
            return Err(CpuSelectionError::Empty { allowed });
        }
        if !others.is_empty() {
            let chosen = self.clone();
            return Err(CpuSelectionError::NotAllowed {
                chosen,
                others,
                allowed,
            });
        }
        Ok(())
    }

    fn place(cpu: CpuId) -> (usize, u64) {
        (usize::from(cpu.0) / 64, 1u64 << (cpu.0 % 64))
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    fn trimmed(mut self) -> Self {
        self.trim();
        self
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::new();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

/// Parses the kernel's cpu list format. Allows surrounding white space and an empty list, as in
/// sysfs and cgroupfs, and trailing NUL bytes, as in some copies of these.
impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let mut set = Self::new();
        let text = text.trim_end_matches('\0').trim();
        if text.is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let part = part.trim();
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (parse_id(first, part)?, parse_id(last, part)?);
            if first > last {
                return Err(CpuSetError::Backwards {
                    part: part.to_owned(),
                });
            }
            for cpu in first..=last {
                set.insert(CpuId(cpu));
            }
        }
        Ok(set)
    }
}

fn parse_id(digits: &str, part: &str) -> Result<u16, CpuSetError> {
    let not_a_range = || CpuSetError::NotARange {
        part: part.to_owned(),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(not_a_range());
    }
    let id: u64 = digits.parse().map_err(|_| not_a_range())?;
    match u16::try_from(id) {
        Ok(small) if small <= CpuSet::MAX_ID => Ok(small),
        _ => Err(CpuSetError::TooLarge { cpu: id }),
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| next.0 == last.0 + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_round_trip_in_their_shortest_form() {
        for (text, shortest) in [
            ("", ""),
            (" \n", ""),
            ("0-3\n\0", "0-3"),
            ("0", "0"),
            ("0-3,8\n", "0-3,8"),
            ("8,0,1,2,3", "0-3,8"),
            ("63-64", "63-64"),
            ("8191", "8191"),
        ] {
            assert_eq!(set(text).to_string(), shortest, "{text:?}");
        }
    }

    #[test]
    fn texts_that_are_no_lists_are_refused_with_the_part_that_is_wrong() {
        for text in ["a", "1,,2", "1-", "-1", "+1", "0x1", "1-2-3", "1 2"] {
            assert!(
                matches!(text.parse::<CpuSet>(), Err(CpuSetError::NotARange { .. })),
                "{text}"
            );
        }
        assert_eq!(
            "3-1".parse::<CpuSet>(),
            Err(CpuSetError::Backwards { part: "3-1".into() })
        );
        assert_eq!(
            "8192".parse::<CpuSet>(),
            Err(CpuSetError::TooLarge { cpu: 8192 })
        );
    }

    #[test]
    fn a_cpu_choice_is_within_the_allowed_cpus() {
        let choose = |text| {
            set(text)
                .check_selection(&set("0-3"))
                .map_err(|e| e.to_string())
        };
        assert_eq!((choose("0-3"), choose("2")), (Ok(()), Ok(())));
        let error = choose("").unwrap_err();
        assert!(error.starts_with("is empty") && error.ends_with(", 0-3"));
        let error = choose("2-5,9").unwrap_err();
        assert!(error.starts_with("2-5,9: cpus 4-5,9 are not online"));
        assert!(error.ends_with("; it may use 0-3"));
    }

    #[test]
    fn set_algebra_keeps_equal_sets_equal() {
        assert_eq!(set("0-9").intersection(&set("5-70")), set("5-9"));
        assert_eq!(set("0-2,70").difference(&set("70")), set("0-2"));
        assert_eq!(set("1").union(&set("200")), set("1,200"));
        assert!(set("5").is_subset(&set("4-6")) && !set("5,7").is_subset(&set("4-6")));
        let mut one = set("1,100");
        one.remove(CpuId(100));
        assert_eq!(
            (one.clone(), one.len(), one.first()),
            (set("1"), 1, Some(CpuId(1)))
        );
        assert!(set("100").intersection(&set("1")).is_empty());
    }
}
