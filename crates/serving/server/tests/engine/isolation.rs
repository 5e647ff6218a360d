//! A model with little load beside a flood of requests for another model.

use std::sync::atomic::{AtomicBool, Ordering};

use albacore_engine::Slo;

use super::*;

const MODELS: [&str; 2] = ["main_small_d6.ubj", "main_medium_d6.ubj"];

const FLOOD_CLIENTS: u64 = 48;

/// Rows per request of the flood.
const FLOOD_ROWS: usize = 100;

/// Requests of one row for the first model, one every [`PERIOD`].
const REQUESTS: usize = 100;

const PERIOD: Duration = Duration::from_millis(20);

/// Ten times those of `albacore bench isolation`, like the rows of the flood, because other tests
/// run concurrently.
const OBJECTIVES_MS: [u64; 2] = [250, 1000];

/// Runs before the test fails: a stall of the machine makes requests late regardless of the flood.
const RUNS: usize = 10;

/// Clients that request SHAP values of rows of the second model, and retry when they are refused.
/// Runs until `is_over` is set; returns the number of answers.
async fn flood(started: Arc<Started>, is_over: Arc<AtomicBool>) -> u64 {
    let client = |seed: u64| {
        let (started, is_over) = (Arc::clone(&started), Arc::clone(&is_over));
        tokio::spawn(async move {
            let rows = started.rows(1, FLOOD_ROWS, seed);
            let mut answers = 0;
            while !is_over.load(Ordering::Relaxed) {
                match try_submit(&started, 1, KindSet::only(Kind::Contribs), &rows) {
                    Ok(reply) => answers += u64::from(reply.await.is_ok()),
                    // Retry soon.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
            answers
        })
    };
    let clients: Vec<_> = (0..FLOOD_CLIENTS).map(client).collect();
    let mut answers = 0;
    for client in clients {
        answers += client.await.unwrap();
    }
    answers
}

/// Submits rows that have just arrived, unless they are refused.
fn try_submit(
    started: &Started,
    model: usize,
    kinds: KindSet,
    rows: &[f32],
) -> Result<impl Future<Output = Result<Reply, RequestFailure>> + Send + 'static, Refusal> {
    let handle = started.model(model);
    handle.admit_early()?;
    let count = rows.len() / handle.info().features;
    let mut reservation = handle.reserve(count, ElementType::F32, kinds)?;
    let bytes: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
    reservation.input_mut().copy_from_slice(&bytes);
    Ok(reservation.submit())
}

/// Number of refused requests of the first model.
async fn count_refused(started: &Arc<Started>) -> usize {
    let mut refused = 0;
    let row = started.rows(0, 1, 1);
    let mut ticks = tokio::time::interval(PERIOD);
    let mut replies = Vec::new();
    for _ in 0..REQUESTS {
        ticks.tick().await;
        match try_submit(started, 0, value(), &row) {
            Ok(reply) => replies.push(tokio::spawn(reply)),
            Err(_) => refused += 1,
        }
    }
    for reply in replies {
        reply.await.unwrap().unwrap();
    }
    refused
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_within_its_share_is_not_refused_for_the_flood_of_another() {
    let started = Arc::new(start(config(1, 1), &MODELS).await);
    let slo = |ms| Some(Slo::uniform(Duration::from_millis(ms), 99.0));
    let [few, many] = OBJECTIVES_MS.map(slo);
    let declared = [(MODELS[0], few), (MODELS[1], many)];
    started.engine.declare(&declared).unwrap();
    let mut results = Vec::new();
    for _ in 0..RUNS {
        let is_over = Arc::new(AtomicBool::new(false));
        let flooding = tokio::spawn(flood(Arc::clone(&started), Arc::clone(&is_over)));
        let refused = count_refused(&started).await;
        is_over.store(true, Ordering::Relaxed);
        let answers = flooding.await.unwrap();
        assert!(answers > 0, "what the first leaves is the second's");
        if refused * 100 <= REQUESTS {
            return;
        }
        results.push((refused, answers));
    }
    panic!("refused, and answers of the flood: {results:?}");
}
