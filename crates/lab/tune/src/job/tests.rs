//! The input sent to a pod, and the files written from the returned journal.

use super::*;

fn options() -> TuneOptions {
    TuneOptions {
        latency: None,
        percentile: None,
        mix: "1".to_owned(),
        arrivals: "poisson".to_owned(),
        rate: None,
        time: Duration::from_secs(8),
        seed: 1,
    }
}

fn object() -> Value {
    json!({
        "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "namespace": "team", "uid": "1", "managedFields": []},
        "spec": {
            "workers": 2, "threads": 2,
            "models": [{
                "name": "fraud", "uri": "configmap://maps/fraud.ubj", "slo": {"latency": "25ms"},
            }],
        },
        "status": {"observedGeneration": 1},
    })
}

#[test]
fn the_pod_receives_the_object_as_kubectl_applies_it() {
    let described = describe_job(&object(), &options(), None).unwrap();
    assert_eq!(described.output, Path::new("tune-fraud"));
    let input: JobInput = serde_json::from_str(&described.spec).unwrap();
    let text = &input.deployment;
    assert!(text.contains("uri: configmap://maps/fraud.ubj"), "{text}");
    assert!(text.contains("namespace: team"), "{text}");
    for left_out in ["uid", "managedFields", "status"] {
        assert!(!text.contains(left_out), "{text}");
    }
    let mut edited = object();
    edited["status"]["observedGeneration"] = 2.into();
    let same = describe_job(&edited, &options(), None).unwrap();
    assert_eq!(same.digest, described.digest, "the status is no other work");
    edited["spec"]["workers"] = 1.into();
    let other = describe_job(&edited, &options(), None).unwrap();
    assert_ne!(other.digest, described.digest);
}

#[test]
fn requests_that_a_pod_cannot_tune_are_rejected_before_a_job_is_created() {
    let refused = |object: &Value, options: &TuneOptions| {
        let refused = describe_job(object, options, None).unwrap_err();
        refused.to_string()
    };
    let file = TuneOptions {
        arrivals: "times.txt".to_owned(),
        ..options()
    };
    assert!(refused(&object(), &file).contains("--arrivals times.txt"));
    let mut without = object();
    without["spec"]["models"][0]["slo"] = Value::Null;
    let says = refused(&without, &options());
    assert!(says.contains("InferenceDeployment fraud"), "{says}");
    let mut own = object();
    own["spec"]["models"] = json!([]);
    own["spec"]["template"] = json!({"spec": {"containers": [{
        "name": "server", "image": "x", "command": ["x"], "ports": [{"containerPort": 8080}],
    }]}});
    let says = refused(&own, &options());
    assert!(says.contains("spec.template"), "{says}");
}

#[test]
fn results_are_returned_in_parts_of_a_journal() {
    let (pod, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut journal = Journal::create(pod.path()).unwrap();
    let text = "one".to_owned();
    journal.append(&Line::Progress { text }).unwrap();
    let report = "é".repeat(PART_CHARS + 1);
    let path = ResultFile::Report.path(pod.path(), "fraud");
    std::fs::write(&path, &report).unwrap();
    journal.append_file(ResultFile::Report, &path).unwrap();
    let fetched = here.path().join(TUNE_JOURNAL);
    let written = std::fs::read_to_string(&journal.path).unwrap();
    assert_eq!(written.lines().count(), 3, "a line and two parts");
    let first = written.lines().next().unwrap();
    assert_eq!(line_text(first).as_deref(), Some("one"));
    std::fs::write(&fetched, &written).unwrap();
    let refused = write_fetched(here.path(), "fraud").unwrap_err();
    assert!(refused.to_string().contains("no results"), "{refused}");

    let text = "a summary".to_owned();
    journal.append(&Line::Summary { text }).unwrap();
    std::fs::copy(&journal.path, &fetched).unwrap();
    let refused = write_fetched(here.path(), "fraud").unwrap_err().to_string();
    assert!(
        refused.contains("a summary\nno values to apply"),
        "{refused}"
    );
    let path = ResultFile::Deployment.path(pod.path(), "fraud");
    std::fs::write(&path, "kind: InferenceDeployment").unwrap();
    journal.append_file(ResultFile::Deployment, &path).unwrap();
    std::fs::copy(&journal.path, &fetched).unwrap();
    let (summary, file) = write_fetched(here.path(), "fraud").unwrap();
    assert_eq!(summary, "a summary");
    assert_eq!(file, here.path().join("fraud.yaml"));
    let written = std::fs::read_to_string(here.path().join("report.html")).unwrap();
    assert_eq!(written, report);
    assert!(!fetched.exists());
}
