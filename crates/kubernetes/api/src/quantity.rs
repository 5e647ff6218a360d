//! The syntax of a Kubernetes quantity (`500m`, `2`, `1Gi`): validated when a file is read, and in
//! the schema, so that a wrong unit is rejected before a pod is built from it.

/// The pattern in the schema.
pub(crate) const PATTERN: &str =
    r"^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$";

const SUFFIXES: [&str; 16] = [
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
];

/// The error of `text` as a quantity, if any: the end of a sentence that begins with "it".
pub(crate) fn problem(text: &str) -> Option<String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let is_number = number.chars().any(|c| c.is_ascii_digit()) && number.matches('.').count() <= 1;
    let is_exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|power| {
        let digits = power.strip_prefix(['+', '-']).unwrap_or(power);
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
    });
    if !is_number {
        return Some(
            "must be a number with or without a unit, as in \"500m\", \"2\" or \"1Gi\"".into(),
        );
    }
    if !SUFFIXES.contains(&suffix) && !is_exponent {
        return Some(format!(
            "has the unit \"{suffix}\"; the units are m, k, M, G, T, Ki, Mi, Gi, Ti, as in \
             \"500m\" \
             or \"1Gi\""
        ));
    }
    None
}

/// The number of CPUs in a quantity; `None` if the text is not a quantity.
pub fn cpus(text: &str) -> Option<f64> {
    if problem(text).is_some() {
        return None;
    }
    let end = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    // A decimal exponent, as in 1e3, is part of the number.
    if let Ok(cpus) = text.parse::<f64>() {
        return Some(cpus);
    }
    let powers = |units: &str, base: f64| {
        let power = units.chars().position(|unit| suffix.starts_with(unit))?;
        Some(base.powi(i32::try_from(power).ok()? + 1))
    };
    let unit = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        _ if suffix.ends_with('i') => powers("KMGTPE", 1024.0)?,
        _ => powers("kMGTPE", 1000.0)?,
    };
    Some(number.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_unit_is_named() {
        for good in ["2", "500m", "1.5Gi", "1e3", "0.5", "12E", "-1"] {
            assert_eq!(problem(good), None, "{good}");
        }
        for (bad, part) in [
            ("2GB", "unit \"GB\""),
            ("two", "must be a number"),
            ("2 Gi", "\" Gi\""),
        ] {
            let problem = problem(bad).unwrap();
            assert!(problem.contains(part), "{bad}: {problem}");
        }
    }

    #[test]
    fn cpus_are_counted_in_every_unit() {
        for (text, wanted) in [
            ("2", 2.0),
            ("2500m", 2.5),
            ("1.5", 1.5),
            ("1e1", 10.0),
            ("3000000000n", 3.0),
            ("4000000u", 4.0),
            ("1k", 1000.0),
            ("1Ki", 1024.0),
            ("1M", 1e6),
        ] {
            let found = cpus(text);
            assert!(
                found.is_some_and(|cpus| (cpus - wanted).abs() < 1e-9),
                "{text}: {found:?}"
            );
        }
        assert_eq!(cpus("2 cpus"), None);
    }

    proptest::proptest! {
        #[test]
        fn texts_that_match_the_pattern_are_quantities(text in PATTERN.trim_matches(['^', '$'])) {
            proptest::prop_assert_eq!(problem(&text), None);
        }
    }
}
