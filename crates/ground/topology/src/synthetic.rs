//! Parses a machine from an hwloc synthetic string such as `pack:2 l3:2 core:8 pu:2`: levels from
//! the outermost inwards, each with the number of objects per object of the previous level. Cpus
//! are numbered in that order from 0.
//!
//! Supported levels: `package` (`pack`, `socket`), `die`, `group`, `numanode` (`numa`, `node`),
//! `l5`..`l1` (`l3cache`, `l1d`, `l1i`...), `core`, `pu`, a leading `machine:1`, case-insensitive,
//! and attached memory `[numa]`. Attributes in parentheses (`size`, `memory`, ...) do not affect
//! sharing and are skipped, except `indexes=` of `pu`, which renumbers the cpus: a list of ids is
//! applied, hwloc's interleaving forms are rejected. Missing levels default as in [`Cpu`]: without
//! cores, one per cpu; without L2, the core; without L3, the NUMA domain within the package.

use crate::domains::DisjointSets;
use crate::limits::{SYNTHETIC_BYTES_MAX, SYNTHETIC_CPUS_MAX};
use crate::{CAPACITY_MAX, Cpu, CpuId, CpuSet, Topology, TopologyError};

/// Error of parsing a synthetic string. Positions count characters from 1.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyntheticError {
    /// A syntax error at a position.
    #[error(
        "topology string, position {position}: {problem} \
         (a topology looks like \"pack:1 l3:1 core:16 pu:2\")"
    )]
    At {
        /// Position in characters from 1.
        position: usize,
        problem: String,
    },
    /// The levels do not form a valid machine.
    #[error("the levels do not describe a valid machine")]
    Machine(#[from] TopologyError),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LevelKind {
    Machine,
    Package,
    Numa,
    L3,
    L2,
    L1,
    Core,
    Pu,
    /// Die, group, L4, L5: multiply the number of cpus but are not domains of [`Cpu`].
    Other,
}

#[derive(Debug)]
struct SyntheticLevel {
    kind: LevelKind,
    count: u64,
    /// Start position, as a character index.
    start: usize,
    /// Cpu ids from `indexes=`; empty if not given.
    indexes: Vec<CpuId>,
}

/// Parses a synthetic string.
///
/// # Errors
/// The text has an invalid form (the error contains the position), or domains are not nested.
pub fn parse_synthetic(text: &str) -> Result<Topology, SyntheticError> {
    if text.len() > SYNTHETIC_BYTES_MAX {
        let problem = format!("longer than {SYNTHETIC_BYTES_MAX} bytes");
        return Err(at(SYNTHETIC_BYTES_MAX - 1, problem));
    }
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser {
        chars: &chars,
        at: 0,
    };
    let levels = parser.levels()?;
    let cpus = check_levels(&levels, chars.len())?;
    Ok(build(&levels, cpus)?)
}

struct Parser<'a> {
    chars: &'a [char],
    /// Index of the next character.
    at: usize,
}

impl Parser<'_> {
    fn levels(&mut self) -> Result<Vec<SyntheticLevel>, SyntheticError> {
        let mut levels = Vec::new();
        self.skip_spaces();
        // bound: every level consumes at least one character.
        while self.at < self.chars.len() {
            let start = self.at;
            let level = if self.next_if('[') {
                self.memory(start)?
            } else {
                self.level()?
            };
            levels.push(level);
            if self.at < self.chars.len() && !self.skip_spaces() && self.chars[self.at] != '[' {
                return Err(at(
                    self.at,
                    format!("expected a space, found {:?}", self.rest()),
                ));
            }
        }
        Ok(levels)
    }

    /// `name:count` with optional attributes.
    fn level(&mut self) -> Result<SyntheticLevel, SyntheticError> {
        let start = self.at;
        let name = self.take_while(|c| c.is_ascii_alphanumeric());
        let kind = kind_of(&name).ok_or_else(|| {
            let name = match name.as_str() {
                "" => self.rest(),
                _ => name.clone(),
            };
            at(
                start,
                format!("{name:?} is not a level: write {LEVEL_NAMES}"),
            )
        })?;
        if !self.next_if(':') {
            return Err(at(self.at, format!("a count is missing: write {name}:N")));
        }
        let position = self.at;
        let digits = self.take_while(|c| c.is_ascii_alphanumeric());
        let count = digits
            .parse::<u64>()
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| {
                at(
                    position,
                    format!("{digits:?} is not a count: write a positive whole number"),
                )
            })?;
        let indexes = self.attributes(kind)?;
        Ok(SyntheticLevel {
            kind,
            count,
            start,
            indexes,
        })
    }

    /// `[numa]`: memory attached to each object of the previous level, i.e. a NUMA domain around
    /// it.
    fn memory(&mut self, start: usize) -> Result<SyntheticLevel, SyntheticError> {
        let name = self.take_while(|c| c.is_ascii_alphanumeric());
        if kind_of(&name) != Some(LevelKind::Numa) {
            return Err(at(
                start + 1,
                format!("{name:?} in brackets: only numa is supported there"),
            ));
        }
        self.attributes(LevelKind::Numa)?;
        if !self.next_if(']') {
            return Err(at(self.at, "a closing ] is missing".to_owned()));
        }
        Ok(SyntheticLevel {
            kind: LevelKind::Numa,
            count: 1,
            start,
            indexes: Vec::new(),
        })
    }

    fn attributes(&mut self, kind: LevelKind) -> Result<Vec<CpuId>, SyntheticError> {
        let open = self.at;
        if !self.next_if('(') {
            return Ok(Vec::new());
        }
        let inner = self.take_while(|c| c != ')');
        if !self.next_if(')') {
            return Err(at(open, "this ( is never closed".to_owned()));
        }
        let mut offset = open + 1;
        for attribute in inner.split(' ') {
            match attribute.strip_prefix("indexes=") {
                Some(list) if kind == LevelKind::Pu => return parse_indexes(list, offset + 8),
                _ => offset += attribute.chars().count() + 1,
            }
        }
        Ok(Vec::new())
    }

    fn skip_spaces(&mut self) -> bool {
        !self.take_while(char::is_whitespace).is_empty()
    }

    fn next_if(&mut self, wanted: char) -> bool {
        let found = self.chars.get(self.at) == Some(&wanted);
        self.at += usize::from(found);
        found
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let taken: String = self.chars[self.at..]
            .iter()
            .copied()
            .take_while(|&c| accept(c))
            .collect();
        self.at += taken.chars().count();
        taken
    }

    /// The text up to the next space, for error messages.
    fn rest(&self) -> String {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        rest.iter()
            .take_while(|c| !c.is_whitespace())
            .take(20)
            .collect()
    }
}

fn at(index: usize, problem: String) -> SyntheticError {
    SyntheticError::At {
        position: index + 1,
        problem,
    }
}

fn parse_indexes(list: &str, index: usize) -> Result<Vec<CpuId>, SyntheticError> {
    let id = |part: &str| match part.parse() {
        Ok(id) if id <= CpuSet::MAX_ID => Ok(CpuId(id)),
        _ => Err(at(
            index,
            format!("indexes={list}: expected a list of cpu ids such as 0,2,1,3"),
        )),
    };
    list.split(',').map(id).collect()
}

/// The accepted levels, without their abbreviations.
const LEVEL_NAMES: &str = "machine, package, numa, die, group, l5, l4, l3, l2, l1, core or pu";

/// The level with this name: hwloc's names and their accepted prefixes, case-insensitive.
fn kind_of(name: &str) -> Option<LevelKind> {
    let name = name.to_ascii_lowercase();
    let is = |full: &str, shortest: usize| name.len() >= shortest && full.starts_with(&name);
    if let Some(cache) = name.strip_prefix('l') {
        let level = cache.chars().next()?;
        let rest = cache[1..].strip_suffix("cache").unwrap_or(&cache[1..]);
        if !matches!(rest, "" | "d" | "u" | "i") {
            return None;
        }
        return match level {
            '1' => Some(LevelKind::L1),
            '2' => Some(LevelKind::L2),
            '3' => Some(LevelKind::L3),
            '4' | '5' => Some(LevelKind::Other),
            _ => None,
        };
    }
    match () {
        () if is("machine", 4) || is("system", 3) => Some(LevelKind::Machine),
        () if is("package", 4) || is("socket", 4) => Some(LevelKind::Package),
        () if is("numanode", 4) || is("node", 4) => Some(LevelKind::Numa),
        () if is("die", 3) || is("group", 5) => Some(LevelKind::Other),
        () if is("core", 4) => Some(LevelKind::Core),
        () if is("pu", 2) => Some(LevelKind::Pu),
        () => None,
    }
}

/// Checks order and size; returns the number of cpus.
fn check_levels(levels: &[SyntheticLevel], end: usize) -> Result<u64, SyntheticError> {
    let fail = |level: &SyntheticLevel, problem: String| Err(at(level.start, problem));
    let mut cpus = 1u64;
    for (i, level) in levels.iter().enumerate() {
        if level.kind == LevelKind::Machine && (i > 0 || level.count != 1) {
            return fail(
                level,
                "machine must be the first level, with count 1".to_owned(),
            );
        }
        let repeated = levels[..i].iter().any(|other| other.kind == level.kind);
        if repeated && !matches!(level.kind, LevelKind::Other | LevelKind::L1) {
            return fail(
                level,
                format!("duplicate level {:?}", level.kind).to_lowercase(),
            );
        }
        if level.kind == LevelKind::Pu && i + 1 < levels.len() {
            return fail(&levels[i + 1], "no level can be inside a pu".to_owned());
        }
        cpus = cpus.saturating_mul(level.count);
        if cpus > SYNTHETIC_CPUS_MAX {
            return fail(
                level,
                format!("more than {SYNTHETIC_CPUS_MAX} cpus up to this level"),
            );
        }
    }
    let Some(last) = levels.last().filter(|level| level.kind == LevelKind::Pu) else {
        let problem = "the innermost level must be pu: end with pu:1 (or pu:2 for two \
                       hardware threads per core)";
        return Err(at(end, problem.to_owned()));
    };
    if !last.indexes.is_empty() && last.indexes.len() as u64 != cpus {
        let given = last.indexes.len();
        return fail(
            last,
            format!("indexes= names {given} cpus, but there are {cpus}"),
        );
    }
    let position = |kind| levels.iter().position(|level| level.kind == kind);
    if let (Some(l1), Some(core)) = (position(LevelKind::L1), position(LevelKind::Core)) {
        let between = &levels[l1.min(core) + 1..=l1.max(core)];
        if between.iter().any(|level| level.count != 1) {
            return fail(
                &levels[l1],
                "each core must have exactly one L1: write l1:1 inside core".to_owned(),
            );
        }
    }
    Ok(cpus)
}

fn build(levels: &[SyntheticLevel], cpus: u64) -> Result<Topology, TopologyError> {
    // Number of cpus per object of each level.
    let mut inside = vec![1u64; levels.len()];
    for i in (1..levels.len()).rev() {
        inside[i - 1] = inside[i] * levels[i].count;
    }
    let size = |kind| {
        let level = levels.iter().position(|level| level.kind == kind);
        level.map(|i| inside[i])
    };
    let package = size(LevelKind::Package).unwrap_or(cpus);
    let numa = size(LevelKind::Numa).unwrap_or(cpus).min(package);
    let core = size(LevelKind::Core).or(size(LevelKind::L1)).unwrap_or(1);
    let l2 = size(LevelKind::L2).unwrap_or(core);
    // An L3 that spans several nodes is split at the nodes, as in `parse_sysfs`.
    let l3 = size(LevelKind::L3).unwrap_or(numa).min(numa).max(l2);
    let numa = numa.max(l3);
    let package = package.max(numa);
    let indexes = levels
        .last()
        .map(|level| level.indexes.as_slice())
        .unwrap_or_default();
    let cpu = |i: u64| Cpu {
        id: indexes.get(i as usize).copied().unwrap_or(CpuId(i as u16)),
        core: (i / core) as u32,
        l2: (i / l2) as u32,
        l3: (i / l3) as u32,
        numa: (i / numa) as u32,
        package: (i / package) as u32,
        capacity: CAPACITY_MAX,
    };
    let mut machine: Vec<Cpu> = (0..cpus).map(cpu).collect();
    if !indexes.is_empty() {
        renumber(&mut machine);
    }
    Topology::new(machine)
}

/// Renumbers the domains of each kind in order of their lowest cpu, because `indexes=` has permuted
/// the ids.
fn renumber(machine: &mut [Cpu]) {
    machine.sort_by_key(|cpu| cpu.id);
    let fields: [fn(&mut Cpu) -> &mut u32; 5] = [
        |cpu| &mut cpu.core,
        |cpu| &mut cpu.l2,
        |cpu| &mut cpu.l3,
        |cpu| &mut cpu.numa,
        |cpu| &mut cpu.package,
    ];
    for field in fields {
        let numbers = DisjointSets::by_key(machine.iter_mut().map(|cpu| *field(cpu))).numbers();
        machine
            .iter_mut()
            .zip(numbers)
            .for_each(|(cpu, number)| *field(cpu) = number);
    }
}

#[cfg(test)]
mod tests;
