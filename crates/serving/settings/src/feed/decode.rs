//! A line to [`FeedLine`].

use core::net::IpAddr;
use std::cell::Cell;
use std::rc::Rc;

use serde_json::Value;

use super::{Decoded, FeedLine, Objective, Parameters, Pod};
use crate::fields::{Fields, Unknown};
use crate::invalid::Invalid;
use crate::limits::FEED_LINE_BYTES_MAX;
use crate::read;
use crate::timespan::parse_timespan;

impl FeedLine {
    /// Reads a line, with or without its end.
    ///
    /// # Errors
    /// The first thing that is wrong, with the name of its field.
    pub fn decode(line_bytes: &[u8]) -> Result<Decoded, Invalid> {
        if line_bytes.len() > FEED_LINE_BYTES_MAX {
            let bytes = line_bytes.len();
            return Err(Invalid::TooLong { bytes });
        }
        let tree: Value = serde_json::from_slice(line_bytes).map_err(|error| Invalid::NotJson {
            problem: error.to_string(),
        })?;
        let unknown = Rc::new(Cell::new(0));
        let counted = Unknown::Counted(Rc::clone(&unknown));
        let snapshot = line(Fields::of_whole("the line", tree, counted)?)?;
        snapshot.check()?;
        Ok(Decoded {
            snapshot,
            unknown_fields: unknown.get(),
        })
    }
}

fn line(mut fields: Fields) -> Result<FeedLine, Invalid> {
    let node = text(&mut fields, "node")?;
    let sequence = long(&mut fields, "sequence")?;
    let pods = fields.list("pods")?;
    let snapshot = FeedLine {
        node,
        sequence,
        pods: pods.into_iter().map(pod).collect::<Result<_, _>>()?,
        metrics: fields.text("metrics")?.unwrap_or_default(),
    };
    fields.end()?;
    Ok(snapshot)
}

fn pod(mut fields: Fields) -> Result<Pod, Invalid> {
    let no_address = |_| "is no IP address".to_owned();
    let address = fields.parsed("address", |text| text.parse::<IpAddr>().map_err(no_address))?;
    let given = fields.object("parameters")?;
    let given = given.ok_or_else(|| missing(&fields, "parameters"))?;
    let pod = Pod {
        address: address.map(|address| address.to_canonical()),
        namespace: text(&mut fields, "namespace")?,
        name: text(&mut fields, "name")?,
        uid: text(&mut fields, "uid")?,
        deployment: text(&mut fields, "deployment")?,
        generation: long(&mut fields, "generation")?,
        parameters: parameters(given)?,
    };
    fields.end()?;
    Ok(pod)
}

fn parameters(mut fields: Fields) -> Result<Parameters, Invalid> {
    let batching = fields.object("batching")?;
    let queue = fields.object("queue")?;
    let slo = fields.list("slo")?;
    let workers = fields.whole("workers")?;
    let threads = fields.whole("threads")?;
    let cpu_share = fields.number("cpu_share")?;
    let parameters = Parameters {
        batching: read::batching(Some(batching.ok_or_else(|| missing(&fields, "batching"))?))?,
        queue: read::queue(Some(queue.ok_or_else(|| missing(&fields, "queue"))?))?,
        slo: slo.into_iter().map(objective).collect::<Result<_, _>>()?,
        window: fields.parsed("window", parse_timespan)?,
        workers: workers.ok_or_else(|| missing(&fields, "workers"))?,
        threads: threads.ok_or_else(|| missing(&fields, "threads"))?,
        cpu_share: cpu_share.ok_or_else(|| missing(&fields, "cpu_share"))?,
        generation: long(&mut fields, "generation")?,
        report: fields.parsed("report", parse_timespan)?,
    };
    fields.end()?;
    Ok(parameters)
}

fn objective(mut fields: Fields) -> Result<Objective, Invalid> {
    Ok(Objective {
        model: text(&mut fields, "model")?,
        slo: read::slo(fields)?,
    })
}

fn text(fields: &mut Fields, name: &'static str) -> Result<String, Invalid> {
    let text = fields.text(name)?;
    text.ok_or_else(|| missing(fields, name))
}

fn long(fields: &mut Fields, name: &'static str) -> Result<u64, Invalid> {
    let number = fields.long(name)?;
    number.ok_or_else(|| missing(fields, name))
}

fn missing(fields: &Fields, name: &str) -> Invalid {
    fields.missing(name, "a snapshot has it")
}
