//! Valid scenarios, and error messages of invalid ones.

use super::*;

const GOOD: &str = "\
workers: 8
models:
  - name: resnet
    alpha: 1.053
    beta: 5.072
    slo: 25
  - {name: bert, alpha: 7.353, beta: 0.222, slo: 59}
arrivals:
  process: gamma
  shape: 0.05
  popularity: zipf
  exponent: 0.9
rate: 5000
requests: 2000
seed: 7
policy: timeout
timeout: 10%
drop:
  rule: window
  target: 8
delays:
  control: 100us
  data: 0.05
early: 2%
eager_from: 11.25
";

fn read_with(text: &str, sets: &[&str]) -> Result<Scenario, ScenarioError> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let read_file = |file: &str| match file {
        "zoo.csv" => Ok("name,alpha_ms,beta_ms,slo_ms\nbert,7.353,0.222,59\n".to_owned()),
        "bare.csv" => Ok("name,alpha_ms,slo_ms\nbert,7.353,59\n".to_owned()),
        "bad.csv" => Ok("name,alpha,beta,slo\na,1,1,9\nb,1,-2,9\n".to_owned()),
        "list.txt" => Ok("0 0\n750000 1\n".to_owned()),
        "back.txt" => Ok("5 0\n3 1\n".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    Scenario::read(text, &sets, &read_file)
}

#[test]
fn the_preference_of_auto_is_parsed() {
    let text = GOOD.replace("timeout: 10%\n", "");
    let policy = |sets: &[&str]| read_with(&text, sets).unwrap().policy;
    let default = Policy::Auto(Prefer::ShortWaits);
    assert_eq!(policy(&["policy=auto"]), default);
    assert_eq!(policy(&["policy=auto", "prefer=short_waits"]), default);
    assert_eq!(
        policy(&["policy=auto", "prefer=idle_workers"]),
        Policy::Auto(Prefer::IdleWorkers)
    );
    let refused = read_with(&text, &["policy=auto", "prefer=speed"]);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("\"speed\" is not one of short_waits, idle_workers"));
}

#[test]
fn closed_loop_clients_are_parsed() {
    let text = GOOD.replace("rate: 5000\n", "");
    let sets = [
        "arrivals.process=closed",
        "arrivals.clients=8",
        "arrivals.think=2.5ms",
    ];
    let source = read_with(&text, &sets).unwrap().source;
    let closed = Source::Closed {
        clients: 8,
        think: Nanos(2_500_000),
        popularity: Popularity::Zipf { exponent: 0.9 },
        requests: 2000,
    };
    assert_eq!(source, closed);
}

fn refused(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    read_with(&GOOD.replacen(from, to, 1), &[])
        .unwrap_err()
        .to_string()
}

#[test]
fn every_key_is_parsed() {
    let scenario = read_with(GOOD, &[]).unwrap();
    assert_eq!((scenario.workers, scenario.seed), (8, 7));
    assert_eq!(scenario.models.len(), 2);
    assert_eq!(scenario.models[0].objective, Nanos(25_000_000));
    assert_eq!(scenario.models[0].cost.of(1), Nanos(6_125_000));
    let source = Source::Drawn {
        process: ArrivalProcess::Gamma { shape: 0.05 },
        popularity: Popularity::Zipf { exponent: 0.9 },
        rate: 5000.0,
        requests: 2000,
    };
    assert_eq!(scenario.source, source);
    assert_eq!(scenario.policy, Policy::Timeout(Wait::Share(0.1)));
    let target = Target::Rows(8);
    assert_eq!(scenario.drop, DropPolicy::window(target));
    let (control, data) = (Nanos(100_000), Nanos(50_000));
    assert_eq!(scenario.delays, Delays { control, data });
    assert!((scenario.early - 0.02).abs() < 1e-12);
    assert_eq!(scenario.eager_from, Some(Nanos(11_250_000)));
}

#[test]
fn set_overrides_values_of_the_file() {
    let sets = [
        "policy=eager",
        "drop.rule=head",
        "arrivals.process=poisson",
        "rate=1e3",
    ];
    let scenario = read_with(GOOD, &sets).unwrap();
    assert_eq!(scenario.policy, Policy::Eager);
    assert_eq!(scenario.drop, DropPolicy::Rule(DropRule::Head));
    assert!((scenario.rates().iter().sum::<f64>() - 1000.0).abs() < 1e-6);
    let scenario = read_with("workers: 1\nmodels: {profiles: zoo.csv}\nrate: 1", &[]).unwrap();
    assert_eq!(scenario.models[0].name, "bert");
    let sets = ["models.profiles=zoo.csv"];
    assert_eq!(read_with(GOOD, &sets).unwrap().models.len(), 1);
    let sets = ["arrivals.process=file", "arrivals.file=list.txt"];
    let Source::Listed(list) = read_with(GOOD, &sets).unwrap().source else {
        panic!("a list");
    };
    assert_eq!(list.len(), 2);
}

/// Replaced text, replacement, and expected error.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "alpha: 1.053",
        "alpha: -1",
        "line 4: models[0].alpha: -1 is not between",
    ),
    (
        "beta: 5.072",
        "beta: .nan",
        "line 5: beta: non-finite float",
    ),
    (
        "beta: 5.072",
        "beta: .inf",
        "line 5: beta: non-finite float",
    ),
    (
        "slo: 25",
        "slo: 6",
        "line 6: models[0].slo: resnet: 6 ms is below l(1) = 6.125 ms",
    ),
    ("    slo: 25\n", "", "line 3: models[0].slo: is missing"),
    (
        "workers: 8",
        "workers: 0",
        "line 1: workers: 0 is not between 1 and 100000",
    ),
    (
        "workers: 8",
        "workers: 1.5",
        "line 1: workers: 1.5 is not a whole number",
    ),
    ("workers: 8\n", "", "line 1: workers: is missing"),
    (
        "seed: 7",
        "sead: 7",
        "line 15: sead: is unknown: expected one of workers",
    ),
    ("target: 8", "size: 8", "line 20: drop.size: is unknown"),
    (
        "target: 8",
        "target: most",
        "line 20: drop.target: \"most\" is not own, half or a number of rows",
    ),
    (
        "process: gamma",
        "process: pareto",
        "line 9: arrivals.process: \"pareto\" is not one of",
    ),
    ("  shape: 0.05\n", "", "arrivals.shape: is missing"),
    (
        "process: gamma",
        "process: closed",
        "arrivals.clients: is missing",
    ),
    (
        "process: gamma",
        "process: closed\n  clients: 8",
        "line 14: rate: cannot be combined with process: closed",
    ),
    (
        "process: gamma",
        "process: gamma\n  think: 2ms",
        "line 10: arrivals.think: needs process: closed",
    ),
    ("  exponent: 0.9\n", "", "arrivals.exponent: is missing"),
    (
        "rate: 5000",
        "rate: many",
        "line 13: rate: must be a number",
    ),
    (
        "control: 100us",
        "control: 1h",
        "line 22: delays.control: \"1h\" is not a time",
    ),
    (
        "early: 2%",
        "early: 120%",
        "line 24: early: \"120%\" is not between 0% and 100%",
    ),
    ("timeout: 10%\n", "", "timeout: is missing"),
    ("slo: 59}", "slo: .inf}", "line 7: slo: non-finite float"),
    ("rate: 5000", "rate: [", "line 1"),
    ("seed: 7", "rate: 7", "duplicate mapping key: rate"),
];

#[test]
fn the_targets_of_the_drop_rule_are_named_as_the_policy_accepts_them() {
    let text = GOOD.replace("timeout: 10%\n", "");
    let refused = |policy| {
        let sets = [policy, "drop.target=most"];
        read_with(&text, &sets).unwrap_err().to_string()
    };
    let under_auto = refused("policy=auto");
    let due = "\"most\" is not auto, own, half or a number of rows";
    assert!(under_auto.contains(due), "{under_auto}");
    let under_eager = refused("policy=eager");
    assert!(
        under_eager.contains("\"most\" is not own, half"),
        "{under_eager}"
    );
    assert!(read_with(&text, &["policy=auto", "drop.target=auto"]).is_ok());
    assert!(read_with(&text, &["policy=eager", "drop.target=auto"]).is_err());
}

#[test]
fn an_error_is_not_its_own_cause() {
    let error = read_with(GOOD, &["workers=0"]).unwrap_err();
    assert!(matches!(error, ScenarioError::Scenario(_)), "{error:?}");
    assert!(std::error::Error::source(&error).is_none());
}

#[test]
fn errors_name_line_and_key() {
    for (from, to, said) in WRONG {
        let sentence = refused(from, to);
        assert!(sentence.contains(said), "{to}: {sentence}");
    }
    let refused = |set: &str| read_with(GOOD, &[set]).unwrap_err().to_string();
    assert_eq!(
        refused("rate=-1"),
        "--set rate=-1: rate: -1 is not between 0.000001 and 1000000000"
    );
    assert!(refused("rate").contains("write key=value"));
    assert!(refused("drop.none=1").contains("drop.none: is unknown"));
}

#[test]
fn errors_in_tables_name_file_line_and_column() {
    let refused = |set: &str| read_with(GOOD, &[set]).unwrap_err().to_string();
    let said = refused("models.profiles=bare.csv");
    assert!(
        said.starts_with("bare.csv: line 1: beta_ms: the column is missing"),
        "{said}"
    );
    let said = refused("models.profiles=bad.csv");
    assert!(
        said.starts_with("bad.csv: line 3: beta_ms: -2 is not between"),
        "{said}"
    );
    let said = refused("models.profiles=none.csv");
    assert!(
        said.contains("models.profiles: none.csv: no such file"),
        "{said}"
    );
    let text = GOOD.replace("process: gamma", "process: file\n  file: back.txt");
    let said = read_with(&text, &[]).unwrap_err().to_string();
    assert!(
        said.starts_with("back.txt: line 2: time: is before"),
        "{said}"
    );
}
