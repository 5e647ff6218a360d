//! Keeps a params stream open while the server runs. No other part of the server waits for it.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use albacore_proto::params::WatchRequest;
use albacore_proto::params::params_client::ParamsClient;
use albacore_settings::agent_stream::Parameters;
use prost::Message as _;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;
use tonic::transport::Channel;

use crate::decode;
use crate::endpoint::ParamsEndpoint;
use crate::limits::{
    PARAMS_BACKOFF_MAX, PARAMS_BACKOFF_MIN, PARAMS_BYTES_MAX, PARAMS_CONNECT_MAX,
    PARAMS_KEEPALIVE_PERIOD, PARAMS_KEEPALIVE_WAIT, PARAMS_REPLY_MAX, PARAMS_RETENTION,
    REPORT_PERIOD_MIN,
};
use albacore_live_settings::effective_config::EffectiveConfig;
use albacore_live_settings::events::{ServerEvent, emit};
use albacore_live_settings::handover::Handover;

/// Receives parameters from `endpoint` and reconnects after each loss. Does not return.
pub async fn run(endpoint: ParamsEndpoint, config: Arc<EffectiveConfig>, handover: Handover) {
    let mut backoff = PARAMS_BACKOFF_MIN;
    let mut reported_error = None;
    // bound: one iteration per stream or backoff; ends with the server.
    loop {
        let mut messages = 0_u64;
        let start = Instant::now();
        let error = receive(&endpoint, &config, &handover, &mut messages).await;
        config.set_stream_disconnected();
        if messages > 0 {
            reported_error = None;
        }
        // A stream that ends directly after its first message does not reset the backoff.
        if messages > 0 && start.elapsed() > backoff {
            backoff = PARAMS_BACKOFF_MIN;
        }
        // Reported once, because a missing agent would otherwise be reported every few seconds.
        if reported_error.as_ref() != Some(&error) {
            emit(&ServerEvent::ParametersLost {
                place: endpoint.to_string(),
                error: error.clone(),
            });
            reported_error = Some(error);
        }
        sleep(with_jitter(backoff)).await;
        backoff = (backoff * 2).min(PARAMS_BACKOFF_MAX);
        if config.expire_stream(PARAMS_RETENTION) {
            handover.remove_parameters();
            emit(&ServerEvent::ParametersForgotten {
                place: endpoint.to_string(),
            });
        }
    }
}

/// Opens a stream and applies its messages until it ends; returns the reason.
async fn receive(
    endpoint: &ParamsEndpoint,
    config: &EffectiveConfig,
    handover: &Handover,
    messages: &mut u64,
) -> String {
    let mut client = match connect(endpoint).await {
        Ok(client) => client,
        Err(error) => return error,
    };
    let opened = timeout(PARAMS_REPLY_MAX, client.watch(WatchRequest {})).await;
    let mut stream = match opened {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => return status_text(&status),
        Err(_) => return "timed out".to_owned(),
    };
    let receiving = async {
        // bound: one iteration per message; the sender pauses between them.
        loop {
            match stream.message().await {
                Ok(Some(message)) => {
                    *messages += 1;
                    let decoded = decode::parameters(&message, config.threads());
                    if apply(config, decoded) {
                        handover.store_parameters(&message.encode_to_vec());
                    }
                }
                Ok(None) => return "the stream ended".to_owned(),
                Err(status) => return status_text(&status),
            }
        }
    };
    tokio::select! {
        error = receiving => error,
        never = send_reports(client, config) => match never {},
    }
}

async fn connect(endpoint: &ParamsEndpoint) -> Result<ParamsClient<Channel>, String> {
    let endpoint = endpoint.to_tonic().map_err(|error| error.to_string())?;
    let endpoint = endpoint
        .connect_timeout(PARAMS_CONNECT_MAX)
        .http2_keep_alive_interval(PARAMS_KEEPALIVE_PERIOD)
        .keep_alive_timeout(PARAMS_KEEPALIVE_WAIT)
        .keep_alive_while_idle(true);
    // The connect timeout does not cover name resolution.
    match timeout(2 * PARAMS_CONNECT_MAX, endpoint.connect()).await {
        Ok(Ok(channel)) => {
            Ok(ParamsClient::new(channel).max_decoding_message_size(PARAMS_BYTES_MAX))
        }
        Ok(Err(error)) => Err(format!("cannot connect: {}", root_cause(&error))),
        Err(_) => Err("cannot connect: timed out".to_owned()),
    }
}

/// Reports this server's latency at the interval that the stream requests, until the stream ends.
async fn send_reports(mut client: ParamsClient<Channel>, config: &EffectiveConfig) -> Infallible {
    // bound: one iteration per interval.
    loop {
        sleep(config.report_period().await.max(REPORT_PERIOD_MIN)).await;
        let replied = timeout(PARAMS_REPLY_MAX, client.report(config.latency_report())).await;
        if let Ok(Err(status)) = replied {
            tracing::debug!(%status, "a latency report was refused");
        }
    }
}

/// Applies a decoded message, or records why it is rejected. Returns whether the effective
/// parameters changed.
fn apply(config: &EffectiveConfig, decoded: Result<Parameters, String>) -> bool {
    match decoded {
        Ok(parameters) => {
            let generation = parameters.generation;
            let is_changed = config.set_stream(parameters);
            if is_changed {
                emit(&ServerEvent::ParametersApplied { generation });
            }
            is_changed
        }
        Err(error) => {
            if config.reject_message(&error) {
                tracing::warn!(
                    error,
                    "parameters are refused; the previous ones stay in force"
                );
                emit(&ServerEvent::ParametersRefused { error });
            }
            false
        }
    }
}

/// Returns the innermost source of an error, because the outer messages contain no detail.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    // bound: the length of the source chain.
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn status_text(status: &tonic::Status) -> String {
    match status.code() {
        Code::PermissionDenied => format!("refused: {}", status.message()),
        _ => format!("lost: {}", status.message()),
    }
}

/// Returns a random duration between half of `pause` and `pause`, so that the pods of a node do not
/// reconnect simultaneously.
fn with_jitter(pause: Duration) -> Duration {
    // 64 random bits, as the standard library uses to seed hash maps; 10 of them suffice.
    let part = u32::try_from(RandomState::new().hash_one(0_u8) % 1024).unwrap_or_default();
    pause / 2 + pause * part / 2048
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_varies_between_half_and_all_of_the_pause() {
        let pause = Duration::from_secs(1);
        let pauses: Vec<Duration> = (0..200).map(|_| with_jitter(pause)).collect();
        let bounds = pause / 2..=pause;
        assert!(pauses.iter().all(|pause| bounds.contains(pause)));
        let first = pauses[0];
        assert!(pauses.iter().any(|pause| *pause != first));
    }
}
