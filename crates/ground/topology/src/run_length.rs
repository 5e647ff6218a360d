//! Run-length encoding of number sequences: short for regular sequences, lossless for all.
//!
//! The text is a list of terms `FIRST[-LAST[/STEP]][*EACH][xTIMES]`: the numbers from FIRST to LAST
//! in steps of STEP, each repeated EACH times, and the whole repeated TIMES times. `0-1*2x2,7` is 0
//! 0 1 1 0 0 1 1 7.

use std::fmt::Write as _;

/// Error of parsing a number sequence.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunLengthError {
    /// A term has an invalid form.
    #[error("{term:?} is not FIRST[-LAST[/STEP]][*EACH][xTIMES]: write a list such as 0-15*8x2,16")]
    Term {
        /// The invalid term.
        term: String,
    },
    /// The list contains more numbers than allowed.
    #[error("the list has more than {max} numbers, exceeded at {term:?}")]
    TooMany {
        /// The term that exceeds the limit.
        term: String,
        max: usize,
    },
}

/// A part of a sequence that one term can encode.
struct Run {
    first: u32,
    step: u32,
    /// Number of distinct values.
    count: usize,
    each: usize,
    times: usize,
}

impl Run {
    /// The longest run at the start of `numbers`, which must not be empty.
    fn at_start_of(numbers: &[u32]) -> Self {
        let first = numbers[0];
        let each = repeats(numbers);
        let at = |block: usize| numbers.get(block * each..);
        let next = at(1).and_then(|rest| rest.first());
        let step = next.map_or(0, |next| next.saturating_sub(first));
        let mut count = 1;
        if step > 0 {
            let follows = |block: usize| {
                let rest = at(block)?;
                let wanted = u64::from(first) + block as u64 * u64::from(step);
                let is_next = u64::from(*rest.first()?) == wanted && repeats(rest) == each;
                is_next.then_some(())
            };
            // bound: each block is `each` numbers further on.
            while follows(count).is_some() {
                count += 1;
            }
        }
        let mut run = Self {
            first,
            step,
            count,
            each,
            times: 1,
        };
        if count > 1 {
            let length = run.len();
            let blocks = numbers.chunks_exact(length);
            run.times = blocks.take_while(|b| *b == &numbers[..length]).count();
        }
        // Two distant numbers that are not repeated do not form a run.
        if run.count == 2 && run.step > 1 && run.times == 1 {
            run.count = 1;
        }
        run
    }

    fn len(&self) -> usize {
        self.count * self.each * self.times
    }

    fn write(&self, text: &mut String) {
        let Self { first, step, .. } = *self;
        // infallible: a write to a `String`.
        let _ = write!(text, "{first}");
        if self.count > 1 {
            let last = u64::from(first) + (self.count as u64 - 1) * u64::from(step);
            let _ = write!(text, "-{last}"); // infallible
            if step > 1 {
                let _ = write!(text, "/{step}"); // infallible
            }
        }
        for (mark, number) in [('*', self.each), ('x', self.times)] {
            if number > 1 {
                let _ = write!(text, "{mark}{number}"); // infallible
            }
        }
    }
}

/// Number of repetitions of the first number at the start.
fn repeats(numbers: &[u32]) -> usize {
    let same = numbers.iter().take_while(|&&number| number == numbers[0]);
    same.count()
}

/// Encodes a sequence; empty for an empty one.
pub fn encode_run_length(numbers: &[u32]) -> String {
    let (mut text, mut rest) = (String::new(), numbers);
    // bound: a run has at least one number.
    while !rest.is_empty() {
        if !text.is_empty() {
            text.push(',');
        }
        let run = Run::at_start_of(rest);
        run.write(&mut text);
        rest = &rest[run.len()..];
    }
    text
}

/// Decodes a text of [`encode_run_length`] with at most `max` numbers.
///
/// # Errors
/// The error contains the invalid term.
pub fn decode_run_length(text: &str, max: usize) -> Result<Vec<u32>, RunLengthError> {
    let mut numbers = Vec::new();
    if text.is_empty() {
        return Ok(numbers);
    }
    for term in text.split(',') {
        let refused = || RunLengthError::Term {
            term: term.to_owned(),
        };
        let run = parse_term(term).ok_or_else(refused)?;
        let length = run.count.checked_mul(run.each);
        let length = length.and_then(|length| length.checked_mul(run.times));
        if length.is_none_or(|length| length > max - numbers.len()) {
            let term = term.to_owned();
            return Err(RunLengthError::TooMany { term, max });
        }
        for _ in 0..run.times {
            // infallible: the last number fits into u32.
            let all = (0..run.count).map(|block| run.first + block as u32 * run.step);
            numbers.extend(all.flat_map(|number| std::iter::repeat_n(number, run.each)));
        }
    }
    Ok(numbers)
}

fn parse_term(term: &str) -> Option<Run> {
    let (term, times) = count_after(term, 'x')?;
    let (term, each) = count_after(term, '*')?;
    let (term, step) = count_after(term, '/')?;
    let (first, last) = match term.split_once('-') {
        Some((first, last)) => (number(first)?, Some(number(last)?)),
        None => (number(term)?, None),
    };
    let step = u32::try_from(step).ok()?;
    let count = match last {
        None if step != 1 => return None,
        None => 1,
        Some(last) => {
            let width = last.checked_sub(first)?;
            (width % step == 0).then_some(())?;
            usize::try_from(width / step).ok()?.checked_add(1)?
        }
    };
    Some(Run {
        first,
        step,
        count,
        each,
        times,
    })
}

/// Splits a term at `mark` into the part before it and the number after it; 1 without the mark.
fn count_after(term: &str, mark: char) -> Option<(&str, usize)> {
    let Some((before, count)) = term.split_once(mark) else {
        return Some((term, 1));
    };
    let count = usize::try_from(number(count)?).ok()?;
    (count > 0).then_some((before, count))
}

fn number(digits: &str) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_are_short() {
        let smt: Vec<u32> = (0..128).chain(0..128).collect();
        let caches: Vec<u32> = (0..256).map(|cpu| cpu % 128 / 8).collect();
        let interleaved: Vec<u32> = (0..16).map(|cpu| cpu % 2).collect();
        for (numbers, text) in [
            (&smt[..], "0-127x2"),
            (&caches, "0-15*8x2"),
            (&interleaved, "0-1x8"),
            (&[0, 8, 16, 24, 1, 9, 17, 25], "0-24/8,1-25/8"),
            (&[0, 8, 3, 3, u32::MAX], "0,8,3*2,4294967295"),
            (&[], ""),
        ] {
            assert_eq!(encode_run_length(numbers), text);
            assert_eq!(decode_run_length(text, 256).unwrap(), numbers, "{text}");
        }
    }

    #[test]
    fn errors_name_the_invalid_part() {
        for term in [
            "",
            "a",
            "-1",
            "1-",
            "3-1",
            "0-5/2",
            "0-4/0",
            "4/2",
            "1*0",
            "1x",
            "1x2*2",
            "+1",
            "1 ",
            "4294967296",
        ] {
            let text = format!("0-1,{term}");
            let error = decode_run_length(&text, 99).unwrap_err();
            let term = term.to_owned();
            assert_eq!(error, RunLengthError::Term { term }, "{text}");
        }
        for term in [
            "0-4",
            "0*5",
            "0x5",
            "0-4294967295",
            "0*4294967295x4294967295",
        ] {
            let text = format!("7,{term}");
            let error = decode_run_length(&text, 5).unwrap_err().to_string();
            assert!(
                error.contains(term) && error.contains("more than 5"),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_sequence_round_trips(
            numbers in prop_oneof![
                proptest::collection::vec(0..4_u32, 0..80),
                proptest::collection::vec(any::<u32>(), 0..20),
                proptest::collection::vec(u32::MAX - 3..=u32::MAX, 0..20),
            ],
        ) {
            let text = encode_run_length(&numbers);
            prop_assert_eq!(decode_run_length(&text, numbers.len()), Ok(numbers), "{}", text);
        }

        #[test]
        fn no_text_makes_more_than_it_may(text in "[0-9x*/,-]{0,30}", max in 0..50_usize) {
            if let Ok(numbers) = decode_run_length(&text, max) {
                prop_assert!(numbers.len() <= max);
                prop_assert_eq!(decode_run_length(&encode_run_length(&numbers), max), Ok(numbers));
            }
        }
    }
}
