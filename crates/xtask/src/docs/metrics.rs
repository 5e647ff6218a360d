//! Compares `docs/reference/metrics.md` with the metrics pages of running programs: names, types
//! and labels. The descriptions are written by hand.

use std::collections::{BTreeMap, BTreeSet};

use super::row;

/// A metric family of a page in the Prometheus text format.
#[derive(Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// Rows for the families of `page` that are missing in `reference`, with the help text as
/// description.
///
/// The labels of a family without samples are not compared.
#[must_use]
pub fn missing_rows(reference: &str, page: &str) -> Vec<String> {
    let mut rows = Vec::new();
    for (name, family) in families(page) {
        let labels = family.labels.iter().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let name = format!("`{name}`");
        let start = match labels.as_str() {
            "" => format!("| {name} | {} |", family.kind),
            labels => format!("| {name} | {} | {labels} |", family.kind),
        };
        if !reference.lines().any(|line| line.starts_with(&start)) {
            rows.push(row(&[&name, &family.kind, &labels, &family.help]));
        }
    }
    rows
}

fn families(page: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            let family = families.entry(name.to_owned()).or_default();
            help.trim_end_matches('.').clone_into(&mut family.help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            name.clone_into(&mut current);
            let family = families.entry(name.to_owned()).or_default();
            kind.clone_into(&mut family.kind);
        } else if let Some((name, labels)) = line.split_once('{')
            && name.starts_with(&current)
            && let Some(family) = families.get_mut(&current)
        {
            // A label name is the text between a comma or the start and `="`.
            let parts: Vec<&str> = labels.split("=\"").collect();
            let keys = parts.iter().take(parts.len().saturating_sub(1));
            let keys = keys.filter_map(|part| part.rsplit([',', '"']).next());
            let keys = keys.filter(|key| *key != "le").map(str::to_owned);
            family.labels.extend(keys);
        }
    }
    families.retain(|_, family| !family.kind.is_empty());
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP a_total Requests.\n# TYPE a_total counter\n\
                        a_total{model=\"m\",code=\"200\"} 1\n\
                        # HELP b Rows.\n# TYPE b gauge\nb 1\n\
                        # HELP c_seconds Time.\n# TYPE c_seconds histogram\n\
                        c_seconds_bucket{le=\"1\",model=\"m\"} 1\n";

    #[test]
    fn rows_are_compared_by_name_type_and_labels() {
        let rows = missing_rows("", PAGE);
        assert_eq!(
            rows,
            [
                "| `a_total` | counter | `code`, `model` | Requests |\n",
                "| `b` | gauge |  | Rows |\n",
                "| `c_seconds` | histogram | `model` | Time |\n",
            ]
        );
        let reference = rows.concat();
        assert!(missing_rows(&reference, PAGE).is_empty());
        assert!(missing_rows(&reference.replace("Rows", "Lines"), PAGE).is_empty());
        for (from, to) in [
            ("gauge", "counter"),
            ("`model` |", "`kind` |"),
            ("`b`", "`d`"),
        ] {
            assert!(
                !missing_rows(&reference.replace(from, to), PAGE).is_empty(),
                "{from}"
            );
        }
    }

    #[test]
    fn a_family_without_samples_is_compared_without_labels() {
        let page = "# HELP a_total Requests.\n# TYPE a_total counter\n";
        let reference = "| `a_total` | counter | `model` | Requests |\n";
        assert!(missing_rows(reference, page).is_empty());
    }
}
