//! Durations in the format of the custom resource: a whole number and a unit, `25ms`, `2s`,
//! `250us`.

use std::time::Duration;

use crate::limits::TIMESPAN_MICROS_MAX;

/// Parses a duration; the error describes the expected format.
pub(crate) fn parse_timespan(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let micros = match unit {
        "us" => Some(1),
        "ms" => Some(1_000),
        "s" => Some(1_000_000),
        _ => None,
    };
    let number = digits.parse::<u64>().ok().filter(|_| digits.len() <= 9);
    let (Some(micros), Some(number)) = (micros, number) else {
        return Err(
            "is not a duration: write a whole number of us, ms or s, as in \"25ms\"".to_owned(),
        );
    };
    let span = Duration::from_micros(number * micros);
    if is_in_bounds(span) {
        return Ok(span);
    }
    let most = TIMESPAN_MICROS_MAX / 1_000_000;
    Err(format!("must be longer than 0 and at most {most}s"))
}

/// Returns whether a duration can be printed and parsed again without loss.
pub(crate) fn is_in_bounds(span: Duration) -> bool {
    let micros = span.as_micros();
    (1..=u128::from(TIMESPAN_MICROS_MAX)).contains(&micros)
        && span.subsec_nanos().is_multiple_of(1_000)
}

/// Prints a duration in the largest unit that gives a whole number.
pub(crate) fn print_timespan(span: Duration) -> String {
    match span.as_micros() {
        m if m % 1_000_000 == 0 => format!("{}s", m / 1_000_000),
        m if m % 1_000 == 0 => format!("{}ms", m / 1_000),
        m => format!("{m}us"),
    }
}
