//! The serving part of the deployment's file, in the form of `albacore-server` (settings) and of
//! `albacore-params` (node snapshot).

use albacore_api::{
    IterationRange, Iterations, ModelFile, ModelSource, NamedIterations, Output, ReleaseRule,
    ServerSettings,
};
use albacore_settings::agent_stream::{ModelSlo, NodeSnapshot, Parameters, ServingPod};
use albacore_settings::{Batching, Model, Policy, Queue, Settings, Slo, Source};

/// The settings of the server.
///
/// # Errors
/// A sentence that names the field.
pub(crate) fn settings_of(server: &ServerSettings) -> Result<Settings, String> {
    let policy = match server.release {
        ReleaseRule::Auto => Policy::Auto,
        ReleaseRule::Deferred => Policy::Deferred,
        ReleaseRule::Eager => Policy::Eager,
        ReleaseRule::Timeout(delay) => Policy::Timeout {
            delay: delay.duration(),
        },
    };
    let settings = Settings {
        models: server.models.iter().map(model).collect::<Result<_, _>>()?,
        batching: Batching {
            policy,
            max_rows: server.batch_rows_max,
        },
        queue: Queue {
            max_rows: server.queue_rows_max,
        },
    };
    settings.check().map_err(|error| error.to_string())?;
    Ok(settings)
}

fn model(model: &ModelFile) -> Result<Model, String> {
    let source = match &model.source {
        ModelSource::File(path) => {
            let text = path.to_str().map(str::to_owned);
            Source::Path(text.ok_or_else(|| format!("the path {} is not UTF-8", path.display()))?)
        }
        ModelSource::Url(url) => Source::Url(url.clone()),
    };
    Ok(Model {
        name: model.name.clone(),
        source,
        sha256: model.sha256.as_deref().map(str::parse).transpose()?,
        iterations: model.iterations.map(iterations_of),
        slo: model.slo.map(|slo| Slo {
            latency: slo.latency.duration(),
            percentile: slo.percentile,
            contribs: slo.contribs.map(|span| span.duration()),
            interactions: slo.interactions.map(|span| span.duration()),
        }),
        outputs: model.outputs.iter().map(output).collect(),
    })
}

fn iterations_of(iterations: Iterations) -> albacore_settings::Iterations {
    match iterations {
        Iterations::Named(NamedIterations::All) => albacore_settings::Iterations::All,
        Iterations::Named(NamedIterations::Best) => albacore_settings::Iterations::Best,
        Iterations::Range(IterationRange { begin, end }) => {
            albacore_settings::Iterations::Range { begin, end }
        }
    }
}

fn output(output: &Output) -> albacore_settings::Output {
    match output {
        Output::Output => albacore_settings::Output::Output,
        Output::Margin => albacore_settings::Output::Margin,
        Output::Contribs => albacore_settings::Output::Contribs,
        Output::Interactions => albacore_settings::Output::Interactions,
        Output::Leaf => albacore_settings::Output::Leaf,
    }
}

/// The same for the feed: this machine as a node, the server as its one pod. `generation` counts
/// the edits of the file.
pub(crate) fn feed_line_of(
    settings: &Settings,
    sizes: (u16, u16),
    generation: u64,
) -> NodeSnapshot {
    let objectives = settings.models.iter().filter_map(|model| {
        Some(ModelSlo {
            model: model.name.clone(),
            slo: model.slo?,
        })
    });
    // The cpus that this process may use, by cpuset and quota: the server starts with the same.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let parameters = Parameters {
        batching: settings.batching,
        queue: settings.queue,
        slo: objectives.collect(),
        window: None,
        workers: sizes.0.into(),
        threads: sizes.1.into(),
        cpu_share: cpus as f64,
        generation,
        report: None,
    };
    let name = "albacore-run";
    let pod = ServingPod {
        address: None,
        namespace: name.to_owned(),
        name: name.to_owned(),
        uid: std::process::id().to_string(),
        deployment: name.to_owned(),
        generation,
        parameters,
    };
    NodeSnapshot {
        node: name.to_owned(),
        sequence: generation,
        pods: vec![pod],
        metrics: String::new(),
    }
}
