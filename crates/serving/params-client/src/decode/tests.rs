//! Valid and invalid messages.

use super::*;

fn message() -> proto::Parameters {
    proto::Parameters {
        batching: Some(proto::Batching {
            policy: proto::Policy::Timeout.into(),
            max_rows: 512,
            prefer: None,
            max_delay_us: Some(2000),
            window_us: None,
        }),
        queue: Some(proto::Queue { max_rows: 4096 }),
        slo: vec![proto::Objective {
            model: "m".to_owned(),
            latency_us: 25_000,
            percentile: 99.0,
            contribs_us: Some(80_000),
            interactions_us: None,
        }],
        generation: 7,
        report_us: None,
        models: vec![proto::ModelParameters {
            model: "m".to_owned(),
            threads: Some(2),
            weight: Some(300),
            batching: Some(proto::Batching {
                policy: proto::Policy::Deferred.into(),
                max_rows: 64,
                prefer: None,
                max_delay_us: None,
                window_us: Some(5000),
            }),
        }],
    }
}

/// Decodes the message as a server with workers of four threads.
fn parameters(message: &proto::Parameters) -> Result<Parameters, String> {
    super::parameters(message, 4)
}

#[test]
fn every_field_of_a_message_is_decoded() {
    let decoded = parameters(&message()).unwrap();
    let delay = Duration::from_millis(2);
    assert_eq!(decoded.batching.policy, Policy::Timeout { delay });
    assert_eq!(decoded.batching.batch_rows_max, 512);
    assert_eq!(decoded.batching.queue_rows_max, 4096);
    let latency = Duration::from_millis(25);
    let slo = Slo {
        contribs: Some(Duration::from_millis(80)),
        ..Slo::uniform(latency, 99.0)
    };
    let model = "m".to_owned();
    assert_eq!(decoded.slo, [ModelSlo { model, slo }]);
    assert_eq!(decoded.generation, 7);
    let window = Some(Duration::from_millis(5));
    let batching = ModelBatching {
        policy: Policy::Deferred,
        batch_rows_max: 64,
        window,
    };
    let model = ModelParameters {
        model: "m".to_owned(),
        threads: Some(2),
        weight: 300,
        batching: Some(batching),
    };
    assert_eq!(decoded.models, [model]);
    let mut message = message();
    message.models[0] = proto::ModelParameters {
        model: "m".to_owned(),
        ..proto::ModelParameters::default()
    };
    let decoded = parameters(&message).unwrap();
    assert_eq!(decoded.models, [ModelParameters::defaults("m".to_owned())]);
    // A window in the batching of all models.
    let of_all = message.batching.as_mut().unwrap();
    (of_all.policy, of_all.max_delay_us) = (proto::Policy::Auto.into(), None);
    of_all.window_us = Some(5000);
    assert_eq!(parameters(&message).unwrap().batching.window, window);
}

#[test]
fn the_preference_of_auto_is_decoded() {
    for (prefer, wanted) in [
        (None, Prefer::ShortWaits),
        (Some(proto::Prefer::ShortWaits), Prefer::ShortWaits),
        (Some(proto::Prefer::IdleWorkers), Prefer::IdleWorkers),
    ] {
        let mut message = message();
        message.batching = Some(proto::Batching {
            policy: proto::Policy::Auto.into(),
            max_rows: 512,
            max_delay_us: None,
            window_us: None,
            prefer: prefer.map(Into::into),
        });
        let decoded = parameters(&message).unwrap();
        assert_eq!(decoded.batching.policy, Policy::Auto(wanted));
    }
}

#[test]
fn unknown_preferences_and_those_of_other_policies_are_rejected() {
    for (policy, prefer, words) in [
        (proto::Policy::Eager, 2, "is allowed with policy auto only"),
        (proto::Policy::Auto, 9, "9 is not a preference"),
        (proto::Policy::Auto, 0, "0 is not a preference"),
    ] {
        let mut message = message();
        message.batching = Some(proto::Batching {
            policy: policy.into(),
            max_rows: 512,
            max_delay_us: None,
            window_us: None,
            prefer: Some(prefer),
        });
        let error = parameters(&message).unwrap_err();
        let start = format!("parameters.batching.prefer: {words}");
        assert!(error.starts_with(&start), "{error}");
    }
}

fn of_model(message: &mut proto::Parameters) -> &mut proto::Batching {
    message.models[0].batching.as_mut().unwrap()
}

#[test]
#[allow(clippy::too_many_lines)] // a table
fn invalid_fields_are_rejected_by_name() {
    type Change = fn(&mut proto::Parameters, &mut proto::Batching);
    let cases: [(Change, &str); 24] = [
        (|_, b| b.policy = 0, "batching.policy: 0 is not a policy"),
        (|_, b| b.policy = 99, "batching.policy: 99 is not a policy"),
        (
            |_, b| b.policy = proto::Policy::Eager.into(),
            "batching.max_delay_us: is allowed with",
        ),
        (
            |_, b| b.max_delay_us = None,
            "batching.max_delay_us: is missing",
        ),
        (
            |p, b| {
                p.models.clear();
                b.max_delay_us = Some(25_000);
            },
            "batching.max_delay: \"25ms\" is not shorter",
        ),
        (
            |_, b| b.max_delay_us = Some(u64::MAX),
            "batching.max_delay: ",
        ),
        (
            |_, b| b.policy = proto::Policy::Deferred.into(),
            "batching.max_delay_us: is allowed with",
        ),
        (|_, b| b.max_rows = 0, "batching.max_rows: 0 is not from 1"),
        (
            |_, b| b.max_rows = u32::MAX,
            "batching.max_rows: 4294967295 is not",
        ),
        (|p, _| p.queue = None, "queue: is missing"),
        (
            |p, _| p.slo[0].percentile = f64::NAN,
            "slo[0].percentile: NaN is not",
        ),
        (|p, _| p.slo[0].latency_us = 0, "slo[0].latency: "),
        (
            |p, _| p.slo[0].interactions_us = Some(u64::MAX),
            "slo[0].interactions: ",
        ),
        (
            |p, _| p.slo = vec![p.slo[0].clone(); 2],
            "slo[1].model: \"m\" is listed twice",
        ),
        (
            |_, b| b.window_us = Some(5000),
            "batching.window: \"5ms\" is allowed with policy auto or deferred only",
        ),
        (
            |p, _| p.models[0].weight = Some(0),
            "models[0].weight: 0 is not from 1 to 10000",
        ),
        (
            |p, _| p.models[0].weight = Some(10_001),
            "models[0].weight: 10001 is not from 1 to 10000",
        ),
        (
            |p, _| p.models[0].threads = Some(0),
            "models[0].threads: 0 is not a valid number of threads",
        ),
        (
            |p, _| p.models[0].threads = Some(5),
            "models[0].threads: 5 is above the 4 threads of a worker",
        ),
        (
            |p, _| p.models[0].threads = Some(1 << 16),
            "models[0].threads: 65536 is not a valid number of threads",
        ),
        (
            |p, _| of_model(p).policy = proto::Policy::Eager.into(),
            "models[0].batching.window: \"5ms\" is allowed with policy auto or deferred only",
        ),
        (
            |p, _| of_model(p).max_rows = 4097,
            "queue.max_rows: 4096 is below parameters.models[0].batching.max_rows, 4097",
        ),
        (
            |p, _| of_model(p).prefer = Some(9),
            "models[0].batching.prefer: 9 is not a preference",
        ),
        (
            |p, _| p.models = vec![p.models[0].clone(); 2],
            "models[1].model: \"m\" is listed twice",
        ),
    ];
    for (change, words) in cases {
        let mut message = message();
        let mut batching = message.batching.take().unwrap();
        change(&mut message, &mut batching);
        message.batching = Some(batching);
        let error = parameters(&message).unwrap_err();
        assert!(
            error.starts_with(&format!("parameters.{words}")),
            "{words}: {error}"
        );
    }
    let mut without = message();
    without.batching = None;
    let error = parameters(&without).unwrap_err();
    assert_eq!(error, "parameters.batching: is missing");
}
