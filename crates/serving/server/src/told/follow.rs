//! Keeps a stream of parameters open, for as long as the server runs. Nothing waits for it.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use albacore_proto::params::WatchRequest;
use albacore_proto::params::params_client::ParamsClient;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;
use tonic::transport::Channel;

use super::desk::Desk;
use super::place::Place;
use super::take::Told;
use crate::events::{Line, say};
use crate::limits::{
    PARAMS_ANSWER_MAX, PARAMS_BYTES_MAX, PARAMS_CONNECT_MAX, PARAMS_KEEPALIVE_PERIOD,
    PARAMS_KEEPALIVE_WAIT, PARAMS_PAUSE_MAX, PARAMS_PAUSE_MIN, REPORT_PERIOD_MIN, TOLD_KEPT_FOR,
};

/// Follows what is said at `place`. Does not end.
pub(crate) async fn follow(place: Place, desk: Arc<Desk>) {
    let mut pause = PARAMS_PAUSE_MIN;
    let mut told_why = None;
    // bound: one pass each stream or pause; ends with the server.
    loop {
        let mut messages = 0_u64;
        let began = Instant::now();
        let why = watch(&place, &desk, &mut messages).await;
        desk.lose();
        if messages > 0 {
            told_why = None;
        }
        // A stream that ends as soon as it speaks is tried again as slowly as one that does not.
        if messages > 0 && began.elapsed() > pause {
            pause = PARAMS_PAUSE_MIN;
        }
        // Once: an agent that is not installed is no news every few seconds.
        if told_why.as_ref() != Some(&why) {
            say(&Line::ParametersLost {
                place: place.to_string(),
                error: why.clone(),
            });
            told_why = Some(why);
        }
        sleep(spread(pause)).await;
        pause = (pause * 2).min(PARAMS_PAUSE_MAX);
        if desk.give_up_after(TOLD_KEPT_FOR) {
            say(&Line::ParametersForgotten {
                place: place.to_string(),
            });
        }
    }
}

/// Opens a stream and heeds it to its end; why it ended.
async fn watch(place: &Place, desk: &Desk, messages: &mut u64) -> String {
    let endpoint = match place.endpoint() {
        Ok(endpoint) => endpoint
            .connect_timeout(PARAMS_CONNECT_MAX)
            .http2_keep_alive_interval(PARAMS_KEEPALIVE_PERIOD)
            .keep_alive_timeout(PARAMS_KEEPALIVE_WAIT)
            .keep_alive_while_idle(true),
        Err(error) => return error.to_string(),
    };
    // A name that does not resolve has no bound of its own.
    let channel = match timeout(2 * PARAMS_CONNECT_MAX, endpoint.connect()).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => return format!("cannot be connected to: {}", innermost(&error)),
        Err(_) => return "cannot be connected to: no answer in time".to_owned(),
    };
    let mut client = ParamsClient::new(channel).max_decoding_message_size(PARAMS_BYTES_MAX);
    let opened = timeout(PARAMS_ANSWER_MAX, client.watch(WatchRequest {})).await;
    let mut stream = match opened {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => return words(&status),
        Err(_) => return "no answer in time".to_owned(),
    };
    let heeding = async {
        // bound: one pass each message; the other side pauses between them.
        loop {
            match stream.message().await {
                Ok(Some(message)) => {
                    *messages += 1;
                    heed(desk, Told::of(&message));
                }
                Ok(None) => return "the stream ended".to_owned(),
                Err(status) => return words(&status),
            }
        }
    };
    tokio::select! {
        why = heeding => why,
        never = report(client, desk) => match never {},
    }
}

/// Reports this server's latency as often as it is told to. Ends with its stream.
async fn report(mut client: ParamsClient<Channel>, desk: &Desk) -> Infallible {
    // bound: one pass each period.
    loop {
        sleep(desk.report_period().await.max(REPORT_PERIOD_MIN)).await;
        let replied = timeout(PARAMS_ANSWER_MAX, client.report(desk.latency())).await;
        if let Ok(Err(status)) = replied {
            tracing::debug!(%status, "a report of latency was not taken");
        }
    }
}

fn heed(desk: &Desk, told: Result<Told, String>) {
    match told {
        Ok(told) => {
            let (generation, unused) = (told.generation, told.unused.clone());
            if desk.tell(told) {
                say(&Line::ParametersApplied { generation, unused });
            }
        }
        Err(error) => {
            if desk.refuse(&error) {
                tracing::warn!(error, "parameters are refused; those before stay in force");
                say(&Line::ParametersRefused { error });
            }
        }
    }
}

/// The reason below all others: those above say that there was one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    // bound: the depth of an error.
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn words(status: &tonic::Status) -> String {
    match status.code() {
        Code::PermissionDenied => format!("refused: {}", status.message()),
        _ => format!("lost: {}", status.message()),
    }
}

/// From half of `pause` to all of it, by chance, so that the pods of a node do not come all at
/// once.
fn spread(pause: Duration) -> Duration {
    // 64 bits of chance, as the standard library seeds its maps; 10 are fine enough.
    let part = u32::try_from(RandomState::new().hash_one(0_u8) % 1024).unwrap_or_default();
    pause / 2 + pause * part / 2048
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_within_their_bounds() {
        let pause = Duration::from_secs(1);
        let pauses: Vec<Duration> = (0..200).map(|_| spread(pause)).collect();
        assert!(
            pauses
                .iter()
                .all(|spread| (pause / 2..=pause).contains(spread))
        );
        let first = pauses[0];
        assert!(pauses.iter().any(|spread| *spread != first));
    }
}
