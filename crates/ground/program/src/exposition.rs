//! Metrics page in the negotiated format: OpenMetrics 1.0.0, or the Prometheus text format 0.0.4,
//! the default.

use crate::process;

/// A format of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus text format 0.0.4.
    Text,
}

impl MetricsFormat {
    /// Selects a format from the values of `Accept` by q-value. OpenMetrics must be named
    /// explicitly and wins ties. A scraper that accepts neither gets the text format, as from other
    /// exporters.
    pub fn accepted<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut q_values = QValues::default();
        for range in values.into_iter().flat_map(|value| value.split(',')) {
            q_values.add(range);
        }
        let text = q_values.text.or(q_values.any_text).or(q_values.any);
        match q_values.open_metrics {
            Some(open) if open > 0.0 && open >= text.unwrap_or(0.0) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The page with `families`, which must be OpenMetrics text, followed by the metrics of this
    /// process.
    #[must_use]
    pub fn page(self, mut families: String) -> String {
        const END: &str = "# EOF\n";
        if families.ends_with(END) {
            families.truncate(families.len() - END.len());
        }
        process::print(&mut families);
        match self {
            Self::OpenMetrics => {
                families.push_str(END);
                families
            }
            Self::Text => as_text(&families),
        }
    }
}

/// The q-values of the relevant media ranges.
#[derive(Default)]
struct QValues {
    open_metrics: Option<f32>,
    text: Option<f32>,
    any_text: Option<f32>,
    any: Option<f32>,
}

impl QValues {
    fn add(&mut self, range: &str) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut weight, mut version) = (1.0, None);
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => {
                    let number = value.parse().ok();
                    weight = number.filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0);
                }
                "version" => version = Some(value.to_owned()),
                _ => {}
            }
        }
        let is_version = |known: &str| version.as_deref().is_none_or(|found| found == known);
        let place = match kind.as_str() {
            "application/openmetrics-text" if is_version("1.0.0") => &mut self.open_metrics,
            "text/plain" if is_version("0.0.4") => &mut self.text,
            "text/*" => &mut self.any_text,
            "*/*" => &mut self.any,
            _ => return,
        };
        *place = Some(place.map_or(weight, |known: f32| known.max(weight)));
    }
}

/// Converts OpenMetrics text to the Prometheus text format: counter families are named like their
/// samples, units are dropped, and some types are renamed. No program here writes exemplars.
fn as_text(families: &str) -> String {
    let mut text = String::with_capacity(families.len() + families.len() / 16);
    let lines: Vec<&str> = families.lines().collect();
    let mut counters = std::collections::BTreeSet::new();
    for line in &lines {
        if let Some((name, "counter")) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            counters.insert(name);
        }
    }
    for line in lines {
        let comment = ["# HELP ", "# TYPE ", "# UNIT "]
            .into_iter()
            .find_map(|start| Some((start, line.strip_prefix(start)?)));
        match comment {
            Some(("# UNIT ", _)) => continue,
            Some((start, rest)) => {
                let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                let total = if counters.contains(name) {
                    "_total"
                } else {
                    ""
                };
                let value = match value {
                    "unknown" if start == "# TYPE " => "untyped",
                    "info" | "stateset" if start == "# TYPE " => "gauge",
                    other => other,
                };
                text.push_str(&format!("{start}{name}{total} {value}"));
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_that_of_the_highest_weight() {
        let open = "application/openmetrics-text";
        for (accept, format) in [
            ("", MetricsFormat::Text),
            ("*/*", MetricsFormat::Text),
            ("text/plain; version=0.0.4", MetricsFormat::Text),
            ("text/plain;version=0.0.4;q=0.5", MetricsFormat::Text),
            ("text/html", MetricsFormat::Text),
            (
                &format!("{open}; version=1.0.0"),
                MetricsFormat::OpenMetrics,
            ),
            (
                &format!("{open};version=\"1.0.0\""),
                MetricsFormat::OpenMetrics,
            ),
            (&format!("{open};version=2.0.0"), MetricsFormat::Text),
            (&format!("{open};q=0"), MetricsFormat::Text),
            (
                &format!("{open};q=0.3,text/plain;q=0.4"),
                MetricsFormat::Text,
            ),
            (&format!("{open};q=0.3,*/*;q=0.4"), MetricsFormat::Text),
            // As sent by Prometheus 2 and 3.
            (
                &format!(
                    "{open};version=1.0.0;q=0.5,{open};version=0.0.1;q=0.4,\
                     text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
                ),
                MetricsFormat::OpenMetrics,
            ),
        ] {
            assert_eq!(MetricsFormat::accepted([accept]), format, "{accept}");
        }
        let lines = ["text/plain;q=0.1", "application/openmetrics-text"];
        assert_eq!(MetricsFormat::accepted(lines), MetricsFormat::OpenMetrics);
    }

    #[test]
    fn the_text_format_names_counters_by_their_samples() {
        let families = "# HELP a Requests.\n# TYPE a counter\na_total{b=\"# TYPE a\"} 1\n\
                        # HELP c_seconds Time.\n# TYPE c_seconds gauge\n# UNIT c_seconds seconds\n\
                        c_seconds 2.0\n# TYPE d unknown\nd 3\n# EOF\n";
        let page = MetricsFormat::Text.page(families.to_owned());
        let wanted = "# HELP a_total Requests.\n# TYPE a_total counter\n\
                      a_total{b=\"# TYPE a\"} 1\n# HELP c_seconds Time.\n\
                      # TYPE c_seconds gauge\nc_seconds 2.0\n# TYPE d untyped\nd 3\n";
        assert!(page.starts_with(wanted), "{page}");
        for name in [
            "cpu_seconds_total",
            "resident_memory_bytes",
            "open_fds",
            "max_fds",
        ] {
            assert!(page.contains(&format!("\nprocess_{name} ")), "{page}");
        }
        assert!(
            !page.contains("# EOF") && !page.contains("# UNIT"),
            "{page}"
        );
        let page = MetricsFormat::OpenMetrics.page(families.to_owned());
        assert_eq!(page.matches("# EOF").count(), 1);
        assert!(page.ends_with("\n# EOF\n"), "{page}");
    }
}
