//! `POST /v2/models/{name}/infer`.

use std::time::Instant;

use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;

use super::super::coding::Coding;
use super::super::metrics;
use super::super::refused::{Cause, Refused};
use super::super::statistics::Answered;
use super::super::terms::{Terms, single, whole_number};
use super::super::{Front, ask, body};
use super::reply::{HttpReply, JSON_LENGTH, Results};
use super::request::Call;
use super::route::Named;
use super::{Http, reply};
use albacore_connections::{ConnState, Limit};
use albacore_engine::KindSet;

/// What is known of a call by the time it ends, for the metrics.
#[derive(Default)]
struct Known {
    model: String,
    kinds: KindSet,
    answered: Option<Answered>,
}

impl Http {
    /// Answers one infer call and counts it.
    pub(super) async fn infer(
        &self,
        headers: &HeaderMap,
        named: &Named<'_>,
        (body, conn): (Incoming, &ConnState),
    ) -> HttpReply {
        let start = conn.arrival();
        let mut known = Known::default();
        let reply = match self
            .results((headers, start), named, (body, conn), &mut known)
            .await
        {
            Ok(results) => results.into_reply(Coding::wanted(headers)),
            Err(refused) => reply::refused(&refused),
        };
        self.front.metrics.count(metrics::Call {
            model: &known.model,
            kinds: known.kinds,
            protocol: "http",
            code: reply.status().as_str().to_owned(),
            took: start.elapsed(),
            answered: known.answered,
        });
        reply
    }

    async fn results(
        &self,
        (headers, start): (&HeaderMap, Instant),
        Named { name, version }: &Named<'_>,
        (body, conn): (Incoming, &ConnState),
        known: &mut Known,
    ) -> Result<Results, Refused> {
        let engine = &self.front.engine;
        let head = ask::find(engine, name, version).and_then(|model| {
            let (json_bytes, terms) = (json_bytes(headers)?, Terms::of(start, headers)?);
            known.model = name.clone().into_owned();
            // Before the body is read: that is most of what a refusal would cost.
            terms.applied_to(model).admit_early()?;
            Ok((json_bytes, terms))
        });
        let (json_bytes, mut terms) = match head {
            Ok(head) => head,
            Err(refused) => {
                body::discard(body);
                return Err(refused);
            }
        };
        let bytes = body::read(body, &self.arriving, conn).await?;
        terms.set_whole(conn.arrival());
        let whole = Instant::now();
        // The model as it is now: it may be another one than when the body began to arrive.
        let model = terms.applied_to(ask::find(engine, name, version)?);
        let bytes = body::unpack(headers, bytes, conn)?;
        let edition = model.edition();
        let call = Call::parse(edition.info(), &bytes, json_bytes)?;
        known.kinds = call.kinds;
        call.set(&mut terms)?;
        ask::check_reply(edition.info(), call.rows, &call.wanted)
            .inspect_err(|_| conn.count(Limit::ReplyBytes))?;
        let (rows, model) = (call.rows, terms.applied_to(model));
        let reply = Front::submit(model, (rows, call.datatype), call.kinds, |m| call.fill(m))?;
        let (id, wanted, input) = (call.id, call.wanted, whole.elapsed());
        drop(bytes); // the rows are in shared memory now
        let reply = terms.bound(reply).await?;
        known.answered = Some(Answered {
            rows,
            input,
            timing: reply.timing(),
            computed: Instant::now(),
        });
        Ok(Results::print(
            edition.info(),
            id.as_deref(),
            rows,
            &wanted,
            &reply,
        ))
    }
}

/// How many bytes of the body are JSON, by the headers; `None` for all of them.
///
/// Forms are let through as JSON because `curl -d` calls everything a form, and octets because
/// `tritonclient.http.aio` calls everything so: what follows the JSON is said by the other header.
pub(super) fn json_bytes(headers: &HeaderMap) -> Result<Option<usize>, Refused> {
    let kind = single(headers, &CONTENT_TYPE)?.map(|kind| kind.to_str().unwrap_or("?"));
    let essence = kind.map(|kind| {
        kind.split(';')
            .next()
            .unwrap_or(kind)
            .trim()
            .to_ascii_lowercase()
    });
    match essence.as_deref() {
        None | Some("" | "application/json" | "application/x-www-form-urlencoded") => {}
        Some(kind) if kind.starts_with("application/") && kind.ends_with("+json") => {}
        Some("application/octet-stream") => {}
        Some(kind) => {
            return Err(Refused::new(
                Cause::MediaType,
                format!(
                    "Content-Type {:?} is not understood; send application/json, or \
                     application/octet-stream with Inference-Header-Content-Length",
                    ask::brief(kind)
                ),
            ));
        }
    }
    let Some(length) = single(headers, &JSON_LENGTH)? else {
        return Ok(None);
    };
    let number = length.to_str().ok().and_then(whole_number);
    match number.and_then(|number| usize::try_from(number).ok()) {
        Some(length) => Ok(Some(length)),
        None => Err(Refused::invalid(format!(
            "Inference-Header-Content-Length {:?} is not a number of bytes",
            ask::brief(&String::from_utf8_lossy(length.as_bytes()))
        ))),
    }
}
