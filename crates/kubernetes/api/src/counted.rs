//! Formats counts with their nouns for messages.

/// `1 worker`, `2 workers`: for nouns with a plural in s.
pub fn counted(n: impl TryInto<i64>, noun: &str) -> String {
    let n = n.try_into().unwrap_or(i64::MAX);
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(0_u8, "mask"), "0 masks");
        assert_eq!(counted(1_usize, "mask"), "1 mask");
        assert_eq!(counted(2_i64, "mask"), "2 masks");
    }
}
