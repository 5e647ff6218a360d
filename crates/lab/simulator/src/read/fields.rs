//! Fields of a map, consumed one by one; a remaining field is unknown.

use albacore_batching::Nanos;

use super::invalid::{Invalid, Place};
use super::node::{Kind, Node};

/// The longest time in a file: a day.
const TIME_MS_MAX: f64 = 86_400_000.0;

/// A map whose fields are consumed.
pub(super) struct Fields {
    /// Dotted path with a trailing dot; empty for the root.
    path: String,
    pub(super) place: Place,
    entries: Vec<(String, Node)>,
    /// Keys that were requested.
    known: Vec<&'static str>,
}

pub(super) struct Field {
    pub(super) key: String,
    pub(super) node: Node,
}

impl Fields {
    pub(super) fn of(node: Node, path: &str) -> Result<Self, Invalid> {
        match node.kind {
            Kind::Map(entries) => Ok(Self {
                path: match path {
                    "" => String::new(),
                    path => format!("{path}."),
                },
                place: node.place,
                entries,
                known: Vec::new(),
            }),
            _ => {
                let key = if path.is_empty() { "the file" } else { path };
                Err(Invalid::new(node.place, key, "must be a mapping"))
            }
        }
    }

    /// Consumes a field; `None` if it is missing or null.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Field> {
        self.known.push(key);
        let index = self.entries.iter().position(|(name, _)| name == key)?;
        let (name, node) = self.entries.remove(index);
        let key = format!("{}{name}", self.path);
        (!matches!(node.kind, Kind::Null)).then_some(Field { key, node })
    }

    pub(super) fn missing(&self, key: &str, problem: &str) -> Invalid {
        let key = format!("{}{key}", self.path);
        Invalid::new(self.place.clone(), &key, format!("is missing: {problem}"))
    }

    /// A nested map; empty if it is missing.
    pub(super) fn map(&mut self, key: &'static str) -> Result<Self, Invalid> {
        let place = self.place.clone();
        match self.take(key) {
            Some(field) => Self::of(field.node, &field.key),
            None => {
                let kind = Kind::Map(Vec::new());
                Self::of(Node { place, kind }, &format!("{}{key}", self.path))
            }
        }
    }

    /// Rejects remaining fields.
    pub(super) fn end(self) -> Result<(), Invalid> {
        match self.entries.into_iter().next() {
            None => Ok(()),
            Some((name, node)) => {
                let key = format!("{}{name}", self.path);
                let problem = format!("is unknown: expected one of {}", self.known.join(", "));
                Err(Invalid::new(node.place, &key, problem))
            }
        }
    }
}

impl Field {
    pub(super) fn invalid(&self, problem: impl Into<String>) -> Invalid {
        Invalid::new(self.node.place.clone(), &self.key, problem)
    }

    /// A finite number within these bounds.
    pub(super) fn number(&self, least: f64, most: f64) -> Result<f64, Invalid> {
        let number = match &self.node.kind {
            Kind::Number(number) => Some(*number),
            Kind::Text(text) => text.parse().ok(),
            _ => None,
        };
        match number {
            Some(n) if n >= least && n <= most => Ok(n),
            Some(n) => Err(self.invalid(format!("{n} is not between {least} and {most}"))),
            None => Err(self.invalid("must be a number")),
        }
    }

    pub(super) fn count(&self, least: u64, most: u64) -> Result<u64, Invalid> {
        let number = self.number(least as f64, most as f64)?;
        match number.fract() == 0.0 {
            true => Ok(number as u64),
            false => Err(self.invalid(format!("{number} is not a whole number"))),
        }
    }

    pub(super) fn text(&self) -> Result<String, Invalid> {
        match &self.node.kind {
            Kind::Text(text) => Ok(text.clone()),
            Kind::Number(number) => Ok(number.to_string()),
            _ => Err(self.invalid("must be a string")),
        }
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Invalid> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.invalid(format!("{text:?} is not one of {}", names.join(", ")))
        })
    }

    /// A share, written as 0.05 or 5%.
    pub(super) fn share(&self) -> Result<f64, Invalid> {
        if let Kind::Text(text) = &self.node.kind
            && let Some(percent) = text.strip_suffix('%')
        {
            let percent: Option<f64> = percent.trim().parse().ok();
            let share = percent
                .map(|p| p / 100.0)
                .filter(|s| (0.0..=1.0).contains(s));
            return share
                .ok_or_else(|| self.invalid(format!("{text:?} is not between 0% and 100%")));
        }
        self.number(0.0, 1.0)
    }

    /// A time, written as 33us, 2ms, 1.5s or, without a unit, in ms.
    pub(super) fn time(&self) -> Result<Nanos, Invalid> {
        let text = self.text()?;
        let end = text.find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E'));
        let (number, unit) = text.split_at(end.unwrap_or(text.len()));
        let factor = match unit {
            "ns" => 1e-6,
            "us" => 1e-3,
            "" | "ms" => 1.0,
            "s" => 1e3,
            _ => f64::NAN,
        };
        let ms = number.trim().parse::<f64>().unwrap_or(f64::NAN) * factor;
        if (0.0..=TIME_MS_MAX).contains(&ms) {
            return Ok(Nanos((ms * 1e6).round() as u64));
        }
        let example = "33us, 2ms, 1.5s, or a number of ms, at most a day";
        Err(self.invalid(format!("{text:?} is not a time: write {example}")))
    }
}
