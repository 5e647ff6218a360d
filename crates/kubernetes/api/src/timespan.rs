//! Durations as written in YAML: a whole number and a unit, `"25ms"`, `"2s"`, `"250us"`.
//!
//! Deliberately one number and one unit: `1m30s` and `0.5s` can be written in two ways each, and
//! `m` may be read as minutes or as milli (it is milli in Kubernetes quantities).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::limits::TIMESPAN_MICROS_MAX;

/// A positive duration of at most ten minutes, in whole microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timespan {
    micros: u64,
}

/// The pattern in the schema; [`Timespan::from_str`] accepts the same texts, within bounds.
pub(crate) const PATTERN: &str = "^[1-9][0-9]{0,8}(us|ms|s)$";

const SECS_MAX: u64 = TIMESPAN_MICROS_MAX / 1_000_000;

/// Reason why a text is not a [`Timespan`]; each message contains the correct form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimespanError {
    /// A number without a unit.
    #[error("has no unit; write \"{0}us\", \"{0}ms\" or \"{0}s\"")]
    NoUnit(String),
    /// A unit that is not us, ms or s.
    #[error("has the unit \"{0}\"; the units are us, ms and s, as in \"25ms\"")]
    Unit(String),
    /// Not a whole number in front of the unit.
    #[error("must be one whole number with one unit (us, ms or s), as in \"25ms\" or \"250us\"")]
    Form,
    /// Zero, or above the bound.
    #[error("must be longer than 0 and at most {SECS_MAX}s")]
    Range,
}

impl Timespan {
    /// `10s`.
    pub(crate) const TEN_SECONDS: Self = Self { micros: 10_000_000 };

    /// From microseconds; `None` for 0 and for more than ten minutes.
    pub fn from_micros(micros: u64) -> Option<Self> {
        (1..=TIMESPAN_MICROS_MAX)
            .contains(&micros)
            .then_some(Self { micros })
    }

    pub fn duration(self) -> Duration {
        Duration::from_micros(self.micros)
    }

    pub fn as_micros(self) -> u64 {
        self.micros
    }
}

impl FromStr for Timespan {
    type Err = TimespanError;

    fn from_str(text: &str) -> Result<Self, TimespanError> {
        let digits_end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        if digits.is_empty() || digits.len() > 9 {
            return Err(TimespanError::Form);
        }
        let micros_per_unit = match unit {
            "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "" => return Err(TimespanError::NoUnit(digits.to_owned())),
            other if other.chars().all(char::is_alphabetic) => {
                return Err(TimespanError::Unit(other.to_owned()));
            }
            _ => return Err(TimespanError::Form),
        };
        let number: u64 = digits.parse().map_err(|_| TimespanError::Form)?;
        if digits.starts_with('0') && number != 0 {
            return Err(TimespanError::Form);
        }
        Self::from_micros(number * micros_per_unit).ok_or(TimespanError::Range)
    }
}

impl fmt::Display for Timespan {
    /// The shortest form: the largest unit that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.micros {
            m if m % 1_000_000 == 0 => write!(f, "{}s", m / 1_000_000),
            m if m % 1_000 == 0 => write!(f, "{}ms", m / 1_000),
            m => write!(f, "{m}us"),
        }
    }
}

impl Serialize for Timespan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timespan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|e| de::Error::custom(format_args!("\"{text}\" {e}")))
    }
}

impl JsonSchema for Timespan {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timespan".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": PATTERN,
            "maxLength": 11,
            "x-kubernetes-validations": [{
                "rule": format!("duration(self) <= duration('{SECS_MAX}s')"),
                "message": format!("must be at most {SECS_MAX}s"),
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_printed_in_its_shortest_form() {
        for (text, micros, printed) in [
            ("25ms", 25_000, "25ms"),
            ("2s", 2_000_000, "2s"),
            ("250us", 250, "250us"),
            ("2000ms", 2_000_000, "2s"),
            ("600s", 600_000_000, "600s"),
        ] {
            let span: Timespan = text.parse().unwrap();
            assert_eq!(
                (span.as_micros(), span.to_string().as_str()),
                (micros, printed)
            );
        }
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        for (text, part) in [
            ("25", "write \"25us\", \"25ms\" or \"25s\""),
            ("25m", "unit \"m\""),
            ("25 ms", "one whole number"),
            ("2.5ms", "one whole number"),
            ("-1s", "one whole number"),
            ("1m30s", "one whole number"),
            ("", "one whole number"),
            ("025ms", "one whole number"),
            ("0ms", "longer than 0"),
            ("601s", "at most 600s"),
            ("9999999999s", "one whole number"),
        ] {
            let error = text.parse::<Timespan>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn texts_that_match_the_pattern_are_parsed_or_out_of_range(text in "[1-9][0-9]{0,8}(us|ms|s)") {
            match text.parse::<Timespan>() {
                Ok(span) => proptest::prop_assert_eq!(span.to_string().parse(), Ok(span)),
                Err(e) => proptest::prop_assert_eq!(e, TimespanError::Range),
            }
        }
    }
}
