//! Rates, formats and modes of load reports.

use std::time::Duration;

use prost::Message as _;

use super::*;
use albacore_engine::ModelLoadTotals;

/// Totals after `seconds`: number of requests, how many of them were bad, and `work_ms` of work.
fn totals(seconds: f64, requests: u64, bad: u64, work_ms: u64) -> LoadTotals {
    let answered = requests - bad;
    LoadTotals {
        at: Duration::from_secs_f64(seconds),
        workers_ready: 2,
        models: vec![ModelLoadTotals {
            name: "fraud".to_owned(),
            requests,
            bad,
            answered,
            queue_wait: Duration::from_millis(3 * answered),
            work: Duration::from_millis(work_ms),
        }],
    }
}

fn reports(mode: LoadReportMode) -> LoadReporter {
    let rates = Rates::between(&totals(1.0, 100, 0, 10), &totals(1.5, 200, 10, 410), 1.25);
    let reports = LoadReporter::new(mode);
    let current = CurrentReports::new(&rates);
    reports.current.store(Some(Arc::new(current)));
    reports
}

fn asking(format: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(FORMAT, HeaderValue::from_static(format))])
}

fn head(reports: &LoadReporter, request: &HeaderMap, model: &str) -> Option<String> {
    let mut head = HeaderMap::new();
    reports.add_to_head(request, model, &mut head);
    let value = head.get(REPORT)?;
    Some(value.to_str().unwrap().to_owned())
}

#[test]
fn rates_are_those_between_two_snapshots() {
    let report = reports(LoadReportMode::OnRequest).newest().unwrap();
    // 0.4 s of work in 0.5 s with two workers.
    assert_eq!(report.application_utilization, 0.4);
    assert_eq!((report.rps_fractional, report.eps), (200.0, 20.0));
    let named: Vec<_> = report.named_metrics.into_iter().collect();
    let expected = [
        ("fraud.eps", 20.0),
        ("fraud.queue_wait_ms", 3.0),
        ("fraud.rps", 200.0),
        ("fraud.utilization", 0.4),
        ("load_factor", 1.25),
        ("queue_wait_ms", 3.0),
    ];
    assert_eq!(
        named,
        expected.map(|(name, value)| (name.to_owned(), value))
    );
}

#[test]
fn a_model_that_counts_from_zero_again_has_no_rates() {
    let rates = Rates::between(&totals(1.0, 100, 50, 900), &totals(2.0, 10, 0, 1), f64::NAN);
    let report = rates.report(&[]);
    assert_eq!((report.rps_fractional, report.eps), (0.0, 0.0));
    assert_eq!(report.application_utilization, 0.0);
    assert_eq!(report.named_metrics["load_factor"], 0.0, "no number");
}

#[test]
fn each_format_is_the_one_that_the_request_names() {
    let reports = reports(LoadReportMode::OnRequest);
    assert_eq!(
        head(&reports, &asking("TEXT"), "fraud").unwrap(),
        "TEXT application_utilization:0.4,rps_fractional:200,eps:20,named_metrics.fraud.eps:20,\
         named_metrics.fraud.queue_wait_ms:3,named_metrics.fraud.rps:200,\
         named_metrics.fraud.utilization:0.4,named_metrics.load_factor:1.25,\
         named_metrics.queue_wait_ms:3"
    );
    // A model that is not served has the report of the server.
    assert_eq!(
        head(&reports, &asking("json"), "absent").unwrap(),
        "JSON {\"application_utilization\":0.4,\"rps_fractional\":200.0,\"eps\":20.0,\
         \"named_metrics\":{\"load_factor\":1.25,\"queue_wait_ms\":3.0}}"
    );
    let binary = head(&reports, &asking("bin"), "fraud").unwrap();
    let mut trailers = HeaderMap::new();
    reports.add_to_trailers(&asking("text"), "fraud", &mut trailers);
    let trailer = trailers[TRAILER].to_str().unwrap();
    assert_eq!(binary, format!("BIN {trailer}"));
    assert_eq!(trailer.len() % 4, 0, "padded: {trailer}");
    let trailers = tonic::metadata::MetadataMap::from_headers(trailers);
    let decoded = trailers.get_bin(TRAILER.as_str()).unwrap().to_bytes();
    let report = OrcaLoadReport::decode(decoded.unwrap()).unwrap();
    assert_eq!(report, reports.newest().unwrap());
}

#[test]
fn the_mode_says_which_replies_carry_a_report() {
    let none = HeaderMap::new();
    let on_request = reports(LoadReportMode::OnRequest);
    assert_eq!(head(&on_request, &none, "fraud"), None);
    assert_eq!(head(&on_request, &asking("yaml"), "fraud"), None);
    assert_eq!(on_request.unknown_formats(), 1);
    let always = reports(LoadReportMode::Always);
    assert!(head(&always, &none, "fraud").unwrap().starts_with("TEXT "));
    assert!(
        head(&always, &asking("yaml"), "fraud")
            .unwrap()
            .starts_with("TEXT ")
    );
    assert!(
        head(&always, &asking("json"), "fraud")
            .unwrap()
            .starts_with("JSON ")
    );
    let never = reports(LoadReportMode::Never);
    assert_eq!(head(&never, &asking("json"), "fraud"), None);
    assert_eq!(
        head(&LoadReporter::new(LoadReportMode::Always), &none, "fraud"),
        None,
        "not yet"
    );
}

#[test]
fn a_name_that_would_break_the_text_is_left_out_of_it() {
    let mut new = totals(2.0, 10, 0, 10);
    new.models[0].name = "a,b:\u{1}".to_owned();
    let rates = Rates::between(&totals(1.0, 0, 0, 0), &new, 1.0);
    let encoded = EncodedReport::new(&rates.report(&rates.models));
    let text = encoded.header(ReportFormat::Text).unwrap();
    assert!(!text.to_str().unwrap().contains("a,b"), "{text:?}");
    let json = encoded.header(ReportFormat::Json).unwrap();
    assert!(
        json.to_str().unwrap().contains("a,b:\\u0001.rps"),
        "{json:?}"
    );
}
