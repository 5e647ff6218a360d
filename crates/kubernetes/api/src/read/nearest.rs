//! Suggests the known name that is closest to a misspelled one.

/// The candidate with the smallest edit distance to `word`, if that is at most a third of the
/// word's length. Differences in case are free.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let edits_max = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| {
            (
                edits(&word.to_lowercase(), &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|&(edits, _)| edits <= edits_max)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The edit distance of `a` and `b` (optimal string alignment): insertions, deletions,
/// substitutions and transpositions of adjacent characters.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if is_swap {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_names_get_a_suggestion_and_unknown_ones_get_none() {
        let known = ["batching", "models", "mode", "queue", "workers"];
        for (word, meant) in [
            ("batchng", Some("batching")),
            ("worker", Some("workers")),
            ("Workers", Some("workers")),
            ("qeueu", None),
            ("qeuue", Some("queue")),
            ("model", Some("mode")),
            ("gpu", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
