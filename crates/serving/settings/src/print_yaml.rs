//! Prints [`Settings`] as YAML.
//!
//! Does not use a serializer: equal settings must print as equal bytes in every version, or an
//! upgrade of the controller would rewrite every ConfigMap. Strings are quoted as in JSON, which
//! YAML parses to the same string.

use std::fmt::{self, Write};

use albacore_batching::{ModelBatching, Policy, Prefer};

use crate::limits::WEIGHT_DEFAULT;
use crate::settings::{
    IterationsSetting, MissingColumnPolicy, ModelSettings, Settings, Source, output_latencies,
};
use crate::timespan::print_timespan;

impl Settings {
    /// Returns the text of the file. [`Settings::read`] parses it to equal settings if they pass
    /// [`Settings::check`].
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_yaml(&mut text);
        text
    }

    fn write_yaml(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "models:")?;
        for model in &self.models {
            print_model(model, out)?;
        }
        print_batching("", &self.batching.of_models(), out)?;
        writeln!(out, "queue:")?;
        writeln!(out, "  max_rows: {}", self.batching.queue_rows_max)
    }
}

/// Returns the preference of `auto`, unless it is the default.
pub(crate) fn non_default_preference(policy: Policy) -> Option<Prefer> {
    policy
        .prefer()
        .filter(|prefer| *prefer != Prefer::default())
}

/// Prints lines indented by `indent`.
fn print_batching(indent: &str, batching: &ModelBatching, out: &mut String) -> fmt::Result {
    writeln!(out, "{indent}batching:")?;
    writeln!(out, "{indent}  policy: {}", batching.policy.name())?;
    writeln!(out, "{indent}  max_rows: {}", batching.batch_rows_max)?;
    if let Some(delay) = batching.policy.delay() {
        writeln!(out, "{indent}  max_delay: \"{}\"", print_timespan(delay))?;
    }
    // Servers of older versions reject this field, so the default is omitted.
    if let Some(prefer) = non_default_preference(batching.policy) {
        writeln!(out, "{indent}  prefer: {}", prefer.name())?;
    }
    match batching.window {
        Some(window) => writeln!(out, "{indent}  window: \"{}\"", print_timespan(window)),
        None => Ok(()),
    }
}

/// Returns the weight, unless it is the default.
pub(crate) fn non_default_weight(weight: u32) -> Option<u32> {
    (weight != WEIGHT_DEFAULT).then_some(weight)
}

fn print_model(model: &ModelSettings, out: &mut String) -> fmt::Result {
    writeln!(out, "- name: {}", json_string(&model.name))?;
    match &model.source {
        Source::Path(path) => writeln!(out, "  path: {}", json_string(path))?,
        Source::Url(url) => writeln!(out, "  url: {}", json_string(url))?,
    }
    if let Some(sha256) = model.sha256 {
        writeln!(out, "  sha256: \"{sha256}\"")?;
    }
    match model.iterations {
        None => {}
        Some(IterationsSetting::All) => writeln!(out, "  iterations: all")?,
        Some(IterationsSetting::Best) => writeln!(out, "  iterations: best")?,
        Some(IterationsSetting::Range { begin, end }) => {
            writeln!(out, "  iterations: {{begin: {begin}, end: {end}}}")?;
        }
    }
    if !model.outputs.is_empty() {
        let names = model.outputs.iter().map(|it| json_string(it.name()));
        let names = names.collect::<Vec<_>>().join(", ");
        writeln!(out, "  outputs: [{names}]")?;
    }
    if model.schema_names.missing != MissingColumnPolicy::default() {
        writeln!(out, "  missing: {}", model.schema_names.missing.name())?;
    }
    if !model.schema_names.classes.is_empty() {
        let names = model
            .schema_names
            .classes
            .iter()
            .map(|name| json_string(name));
        let names = names.collect::<Vec<_>>().join(", ");
        writeln!(out, "  classes: [{names}]")?;
    }
    if !model.schema_names.categories.is_empty() {
        writeln!(out, "  categories:")?;
    }
    for (column, texts) in &model.schema_names.categories {
        let texts = texts.iter().map(|text| json_string(text));
        let texts = texts.collect::<Vec<_>>().join(", ");
        writeln!(out, "    {}: [{texts}]", json_string(column))?;
    }
    if let Some(threads) = model.threads {
        writeln!(out, "  threads: {threads}")?;
    }
    if let Some(weight) = non_default_weight(model.weight) {
        writeln!(out, "  weight: {weight}")?;
    }
    if let Some(batching) = &model.batching {
        print_batching("  ", batching, out)?;
    }
    if let Some(slo) = &model.slo {
        writeln!(out, "  slo:")?;
        writeln!(out, "    latency: \"{}\"", print_timespan(slo.latency))?;
        writeln!(out, "    percentile: {}", slo.percentile)?;
        for (name, span) in output_latencies(slo) {
            writeln!(out, "    {name}: \"{}\"", print_timespan(span))?;
        }
    }
    Ok(())
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
