//! Transfer of files to a job, and of results from it.

use std::path::Path;

use super::description::sum;
use super::*;
use crate::journal::journal_file;
use crate::run::Progress;

const TEXT: &str = "name: a\nworkers: [1]\nthreads: [1]\npolicies: [kernel, scatter]\n\
                    models: [{name: m, file: some.ubj, features: 2}]\nrequests: [{rows: 1}]\n\
                    load: {clients: 1}\ntrials: 2\nwindow: 1s\nquick: {threads: [2]}\n";

/// The file of an experiment, with a model in the same folder.
fn experiment(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("experiment.yaml");
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.join("some.ubj"), "a model").unwrap();
    file
}

fn receive_all(job: &Path, described: &Description) {
    for file in &described.files {
        let bytes = match &file.source {
            None => described.spec.clone().into_bytes(),
            Some(source) => std::fs::read(source).unwrap(),
        };
        // in two parts, the second one sent twice
        let half = bytes.len() / 2;
        for (offset, part) in [
            (0, &bytes[..half]),
            (half, &bytes[half..]),
            (half, &bytes[half..]),
        ] {
            let (at, length) = (offset as u64, part.len() as u64);
            receive(job, &file.path, at, length, &mut &*part).unwrap();
        }
    }
}

fn list(described: &Description) -> Vec<u8> {
    serde_json::to_vec(&described.files).unwrap()
}

#[test]
fn a_job_receives_the_described_experiment() {
    let (here, job) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = experiment(here.path(), TEXT);
    let described = describe(&file, true, None).unwrap();
    assert_eq!(described.name, "a-quick");
    assert_eq!(described.output, Path::new("experiment-a-quick"));
    let other = describe(&file, false, None).unwrap();
    assert_ne!(described.digest, other.digest);
    receive_all(job.path(), &described);
    assert_eq!(state(job.path()), JobState::Waiting);
    begin(job.path(), &mut list(&described).as_slice()).unwrap();
    assert_eq!(state(job.path()), JobState::Running);
    let spec = crate::Spec::read(&job.path().join(SPEC), false).unwrap();
    assert_eq!(spec.threads, [2], "as --quick says");
    let model = std::fs::read_to_string(&spec.models[0].file).unwrap();
    assert_eq!(model, "a model");
    let refused = receive(job.path(), SPEC, 0, 1, &mut &b"x"[..]).unwrap_err();
    assert!(
        refused.to_string().contains("is already running"),
        "{refused}"
    );
}

#[test]
fn experiments_that_a_job_cannot_run_are_rejected() {
    let (here, job) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own = TEXT.replace("rows: 1}", "rows: 1, path: /predict}") + "template: {command: [x]}\n";
    let file = experiment(here.path(), &own);
    let refused = describe(&file, false, None).unwrap_err();
    assert!(refused.to_string().contains("remove template"), "{refused}");
    let file = experiment(here.path(), TEXT);
    let described = describe(&file, false, None).unwrap();
    receive_all(job.path(), &described);
    let model = described.files.last().unwrap().path.clone();
    receive(job.path(), &model, 0, 7, &mut &b"A MODEL"[..]).unwrap();
    let refused = begin(job.path(), &mut list(&described).as_slice()).unwrap_err();
    assert!(refused.to_string().contains("damaged"), "{refused}");
    assert_eq!(state(job.path()), JobState::Waiting);
    for path in ["../x", "/x", "input/../../x"] {
        let refused = receive(job.path(), path, 0, 1, &mut &b"x"[..]).unwrap_err();
        assert!(refused.to_string().contains("not below"), "{refused}");
    }
    let refused = receive(job.path(), "x", 0, 2, &mut &b"x"[..]).unwrap_err();
    assert!(
        refused.to_string().contains("connection was closed"),
        "{refused}"
    );
}

/// Lines and end that a follower receives.
fn sent(job: &Path, fetched: &FetchedResults) -> (String, Vec<String>, Option<String>) {
    let (mut lines, mut progress, mut end) = (String::new(), Vec::new(), None);
    let mut counter = WindowCounter::default();
    let name = |what: &Progress<'_>| match what {
        Progress::Start { done, all, .. } => format!("{done} of {all}"),
        Progress::Failed(failed) => failed.what.clone(),
        other => panic!("{other:?}"),
    };
    follow(job, JOURNAL, fetched, &mut |what| {
        match what {
            FollowMessage::Line { text, is_new } => {
                let meaning = counter.count(text, is_new, name).unwrap();
                if is_new {
                    lines += text;
                    progress.push(meaning);
                }
            }
            FollowMessage::KeepAlive => {}
            FollowMessage::End(failure) => end = failure,
        }
        Ok(())
    })
    .unwrap();
    (lines, progress, end)
}

#[test]
fn the_end_of_a_failed_job_holds_the_cause() {
    let job = tempfile::tempdir().unwrap();
    for file in [STARTED, FETCHED] {
        write(&job.path().join(file), b"").unwrap();
    }
    let failed = run_in_pod(job.path(), &mut || {
        let full = std::io::Error::other("the disk is full");
        Err(file_error(Path::new("/x"))(full))
    });
    assert!(matches!(failed, Err(ExperimentError::File { .. })));
    let end = std::fs::read(job.path().join(ENDED)).unwrap();
    let end: Ended = serde_json::from_slice(&end).unwrap();
    assert_eq!(end.failure.as_deref(), Some("/x: the disk is full"));
}

#[test]
fn lines_that_a_follower_does_not_have_are_marked_as_new() {
    let (here, job) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let results = job.path().join(JOB_RESULTS);
    std::fs::create_dir(&results).unwrap();
    let file = experiment(here.path(), TEXT);
    let header = crate::record::Header {
        format: crate::record::FORMAT,
        version: String::new(),
        started: 1,
        spec: crate::Spec::read(&file, false).unwrap(),
        machine: crate::machine::Machine::of_tests(),
    };
    let failed = crate::Failed {
        cell: crate::grid::Cell {
            model: "m".to_owned(),
            workers: 1,
            threads: 1,
        },
        windows: 6,
        what: "no".to_owned(),
    };
    let (mut journal, _) = crate::journal::Journal::open(&results, header).unwrap();
    let begin = fetched_results(&journal_file(&results)).unwrap();
    journal
        .append(&crate::record::Line::Failed(failed))
        .unwrap();
    let ended = serde_json::json!({"failure": "interrupted"}).to_string();
    write(&job.path().join(ENDED), ended.as_bytes()).unwrap();

    let none = fetched_results(&journal_file(here.path())).unwrap();
    let (lines, progress, end) = sent(job.path(), &none);
    let whole = std::fs::read_to_string(journal_file(&results)).unwrap();
    assert_eq!(lines, whole);
    assert_eq!(progress, ["0 of 6", "no"]);
    assert_eq!(end.as_deref(), Some("interrupted"));
    let (lines, progress, _) = sent(job.path(), &begin);
    assert!(
        whole.ends_with(&lines) && lines.lines().count() == 1,
        "{lines}"
    );
    assert_eq!(progress, ["no"]);

    // the same experiment can be continued here; the results of another one are rejected
    let sent = describe(&file, false, Some(&results)).unwrap_err();
    assert!(sent.to_string().contains("another experiment"), "{sent}");
    let other = FetchedResults {
        sha256: sum(&file, None).unwrap(),
        ..begin
    };
    let refused = follow(job.path(), JOURNAL, &other, &mut |_| Ok(())).unwrap_err();
    assert!(refused.to_string().contains("another run"), "{refused}");
}
