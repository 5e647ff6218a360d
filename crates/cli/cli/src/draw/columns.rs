//! Text in columns: paragraphs with a hanging indent next to their label, and number ranges.

/// Longest line, in characters: two plans fit side by side on a wide screen, one fits on any
/// screen.
pub(super) const LINE_MAX: usize = 96;

/// Formats `label`, padded to `indent`, followed by `text`, which is wrapped at spaces, and after
/// commas if a list of numbers is longer than a line.
pub(super) fn paragraph(label: &str, indent: usize, text: &str) -> String {
    let room = LINE_MAX.saturating_sub(indent);
    let mut lines = String::new();
    let mut line = format!("{label:<indent$}");
    let mut is_empty = true;
    for word in text.split(' ') {
        let is_list = word.chars().count() > room;
        let pieces: Vec<&str> = match is_list {
            true => word.split_inclusive(',').collect(),
            false => vec![word],
        };
        for (index, piece) in pieces.into_iter().enumerate() {
            let gap = if is_empty || index > 0 { "" } else { " " };
            let length = line.chars().count() + gap.len() + piece.chars().count();
            if !is_empty && length > LINE_MAX {
                lines.push_str(line.trim_end());
                lines.push('\n');
                line = " ".repeat(indent) + piece;
            } else {
                line = line + gap + piece;
            }
            is_empty = false;
        }
    }
    lines + line.trim_end() + "\n"
}

/// Formats increasing numbers as ranges: `0-3,8`.
pub(super) fn ranges(numbers: impl IntoIterator<Item = u16>) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if u32::from(*last) + 1 == u32::from(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |(first, last)| match first == last {
        true => format!("{first}"),
        false => format!("{first}-{last}"),
    };
    runs.into_iter().map(run).collect::<Vec<_>>().join(",")
}

/// Joins parts to `a`, `a and b` or `a, b and c`.
pub(super) fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE_MAX, listed, paragraph, ranges};

    #[test]
    fn paragraphs_hang_beside_their_label() {
        let text = paragraph("label", 8, &"word ".repeat(40));
        assert!(text.starts_with("label   word word"), "{text}");
        assert!(text.lines().count() > 1);
        for line in text.lines() {
            assert!(line.len() <= LINE_MAX, "{line}");
        }
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with("        word"))
        );
        let list = paragraph("cpus", 5, &"100,".repeat(60));
        assert!(list.lines().count() > 1 && list.lines().all(|line| line.len() <= LINE_MAX));
        assert_eq!(paragraph("a", 2, "b   c"), "a b   c\n");
        assert!(list.starts_with("cpus 100,100,") && !list.contains(", "));
        let long = "x".repeat(200);
        assert_eq!(paragraph("a", 2, &long), format!("a {long}\n"));
    }

    #[test]
    fn numbers_and_lists_are_short() {
        assert_eq!(ranges([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges([]), "");
        let words = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(listed(&words), "a, b and c");
        assert_eq!(listed(&words[..2]), "a and b");
    }
}
