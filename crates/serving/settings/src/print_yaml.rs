//! Prints [`Settings`] as YAML.
//!
//! Not by a serializer: equal settings must print as equal bytes in every version, or an upgrade of
//! the controller would rewrite every ConfigMap. Strings are quoted as in JSON, which YAML parses
//! to the same string.

use std::fmt::Write as _;

use crate::settings::{Iterations, Policy, Settings, Source};
use crate::timespan::print_timespan;

impl Settings {
    /// The text of the file. [`Settings::read`] parses it to equal settings, if they pass
    /// [`Settings::check`].
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut text = String::from("models:\n");
        for model in &self.models {
            let (field, source) = match &model.source {
                Source::Path(path) => ("path", path),
                Source::Url(url) => ("url", url),
            };
            line(
                &mut text,
                format_args!("- name: {}", json_string(&model.name)),
            );
            line(
                &mut text,
                format_args!("  {field}: {}", json_string(source)),
            );
            if let Some(sha256) = model.sha256 {
                line(&mut text, format_args!("  sha256: \"{sha256}\""));
            }
            match model.iterations {
                None => {}
                Some(Iterations::All) => line(&mut text, format_args!("  iterations: all")),
                Some(Iterations::Best) => line(&mut text, format_args!("  iterations: best")),
                Some(Iterations::Range { begin, end }) => line(
                    &mut text,
                    format_args!("  iterations: {{begin: {begin}, end: {end}}}"),
                ),
            }
            if !model.outputs.is_empty() {
                let names = model
                    .outputs
                    .iter()
                    .map(|output| json_string(output.name()));
                let names = names.collect::<Vec<_>>().join(", ");
                line(&mut text, format_args!("  outputs: [{names}]"));
            }
            if let Some(slo) = model.slo {
                let latency = print_timespan(slo.latency);
                line(&mut text, format_args!("  slo:"));
                line(&mut text, format_args!("    latency: \"{latency}\""));
                line(
                    &mut text,
                    format_args!("    percentile: {}", slo.percentile),
                );
                for (name, span) in slo.output_latencies() {
                    let span = print_timespan(span);
                    line(&mut text, format_args!("    {name}: \"{span}\""));
                }
            }
        }
        line(&mut text, format_args!("batching:"));
        line(
            &mut text,
            format_args!("  policy: {}", self.batching.policy.name()),
        );
        line(
            &mut text,
            format_args!("  max_rows: {}", self.batching.max_rows),
        );
        if let Policy::Timeout { delay } = self.batching.policy {
            let delay = print_timespan(delay);
            line(&mut text, format_args!("  max_delay: \"{delay}\""));
        }
        line(&mut text, format_args!("queue:"));
        line(
            &mut text,
            format_args!("  max_rows: {}", self.queue.max_rows),
        );
        text
    }
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{content}");
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
