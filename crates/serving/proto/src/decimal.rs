//! Parses short decimal numbers to binary32, exactly and fast: most numbers in JSON rows are short.
//!
//! **Approach.** A number of at most 15 digits is a whole number below 10^15 over a power of ten up
//! to 10^15, both exact in a binary64, so that their quotient is the binary64 nearest to it (W. D.
//! Clinger: How to Read Floating Point Numbers Accurately, PLDI 1990). That one rounded to a
//! binary32 is the binary32 nearest to the number, unless it lies just between two of them: then
//! the number itself may lie on either side.
//!
//! **Limits.** Everything else (more digits, exponents, subnormals, halfway cases) is left to the
//! standard library.

/// Most digits of a whole number that is exact in every case in a binary64.
const DIGITS_MAX: u32 = 15;

/// Powers of ten that are exact in a binary64.
const TENS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// The fraction bits of a binary64 that a binary32 lacks, and their value halfway between two
/// binary32 numbers.
const LOST_BITS: u64 = (1 << 29) - 1;
const HALFWAY: u64 = 1 << 28;

/// The number at the start of `text` and its length in bytes, if it is such a number in JSON form:
/// `-`, digits without leading zeros, a point, digits; and no digit, point or exponent follows.
#[must_use]
pub(crate) fn short_f32(text: &[u8]) -> Option<(f32, usize)> {
    let is_negative = text.first() == Some(&b'-');
    let mut at = usize::from(is_negative);
    let (mut whole, mut digits) = (0_u64, 0_u32);
    let mut point = None;
    // bound: DIGITS_MAX digits, one point.
    while let Some(&byte) = text.get(at) {
        match byte {
            b'0'..=b'9' if digits < DIGITS_MAX => {
                whole = whole * 10 + u64::from(byte - b'0');
                digits += 1;
            }
            b'.' if point.is_none() => point = Some(digits),
            b'0'..=b'9' | b'.' | b'e' | b'E' => return None,
            _ => break,
        }
        at += 1;
    }
    let start = usize::from(is_negative);
    let is_padded =
        text.get(start) == Some(&b'0') && text.get(start + 1).is_some_and(u8::is_ascii_digit);
    if digits == 0 || is_padded || point.is_some_and(|at| at == 0 || at == digits) {
        return None;
    }
    let decimals = digits - point.unwrap_or(digits);
    let value = whole as f64 / TENS.get(decimals as usize)?;
    let narrow = value as f32;
    let is_exact = value.to_bits() & LOST_BITS != HALFWAY && (narrow.is_normal() || whole == 0);
    is_exact.then_some((if is_negative { -narrow } else { narrow }, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(text: &str) -> bool {
        match short_f32(text.as_bytes()) {
            Some((value, length)) => {
                assert_eq!(length, text.len(), "{text}");
                value.to_bits() == text.parse::<f32>().expect("a number").to_bits()
            }
            None => false,
        }
    }

    #[test]
    fn short_numbers_are_parsed_here() {
        for text in [
            "0",
            "-0",
            "-0.0",
            "1",
            "0.1",
            "-2.5",
            "123456.789",
            "16777217.5",
            "0.12345678901234",
        ] {
            assert!(same(text), "{text}");
        }
    }

    #[test]
    fn other_numbers_are_left_to_the_standard_library() {
        // Halfway between two binary32, more digits, exponents, no number.
        for text in [
            "16777217",
            "16777219.0",
            "0.1234567890123456",
            "1e5",
            "1.5E-3",
            "",
            "-",
            ".",
            "null",
            "1.2.3",
            "1.",
            ".5",
            "-.5",
            "01",
            "-00.5",
        ] {
            assert_eq!(short_f32(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn it_ends_where_the_number_does() {
        assert_eq!(short_f32(b"1.5, 2"), Some((1.5, 3)));
        assert_eq!(short_f32(b"7]"), Some((7.0, 1)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn it_reads_the_bits_that_the_standard_library_reads(
            bits in any::<u32>(), whole in 0..1_000_000_000_000_000_u64, places in 0..16_usize, is_printed in any::<bool>(),
        ) {
            let text = if is_printed {
                format!("{}", f32::from_bits(bits))
            } else {
                let digits = format!("{whole:016}");
                let (front, behind) = digits.split_at(16 - places);
                let front = front.trim_start_matches('0');
                let text = format!("{front}.{behind}");
                if text.starts_with('.') { format!("0{text}") } else { text }
            };
            if let Some((value, length)) = short_f32(text.as_bytes()) {
                prop_assert_eq!(length, text.len());
                let expected: f32 = text.parse().expect("a number");
                prop_assert_eq!(value.to_bits(), expected.to_bits(), "{}", text);
            }
        }

        #[test]
        fn halfway_numbers_are_never_guessed(bits in 0x3000_0000..0x4b00_0000_u32, side in -1..=1_i64) {
            // Between two neighbors, and just beside.
            let (low, high) = (f64::from(f32::from_bits(bits)), f64::from(f32::from_bits(bits + 1)));
            let between = f64::from_bits(((low + high) / 2.0).to_bits().wrapping_add_signed(side));
            let text = format!("{between:.14}");
            if let Some((value, _)) = short_f32(text.as_bytes()) {
                let expected: f32 = text.parse().expect("a number");
                prop_assert_eq!(value.to_bits(), expected.to_bits(), "{}", text);
            }
        }
    }
}
