//! The tutorials: fenced blocks are run in the order of the page.
//!
//! Marks after `sh` define the kind of a block. `run`: it is run by bash, in one shell for the
//! whole page. `same`: the block is output; each of its lines except `...` was printed by the
//! previous block. `cluster`: commands that need a cluster; their command lines are parsed and
//! their files must exist. Other blocks are ignored.

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use albacore_xtask::docs;

use crate::{programs, root};

/// For liveness only: a page takes seconds on an idle machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// Printed between the outputs of two blocks.
const SEPARATOR: &str = "=====8<=====";

/// A fenced block: the words after the fence, and its lines.
struct Block {
    marks: Vec<String>,
    text: String,
}

impl Block {
    fn is(&self, mark: &str) -> bool {
        self.marks.iter().skip(1).any(|known| known == mark)
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(root().join("docs/tutorials").join(page)).unwrap();
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => found.push(block),
            (Some(marks), None) => {
                let marks = marks.split_whitespace().map(str::to_owned).collect();
                let text = String::new();
                open = Some(Block { marks, text });
            }
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    found
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Replacements in the text of a page, so that several pages can be run concurrently.
struct Replacements(Vec<(&'static str, String)>);

impl Replacements {
    fn apply(&self, text: &str) -> String {
        let replace = |text: String, (from, to): &(&str, String)| text.replace(from, to);
        self.0.iter().fold(text.to_owned(), replace)
    }
}

/// A shell whose process group is killed on drop.
struct Shell(std::process::Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let mut kill = Command::new("kill");
        // The process group is already gone if the shell has exited on its own.
        kill.args(["-KILL", "--", &group]).stderr(Stdio::null());
        let _ = kill.status();
        let _ = self.0.wait();
    }
}

/// Runs the blocks marked `run` in `folder`; returns the output of each.
fn run(page: &str, folder: &Path, path: &str, replacements: &Replacements) -> Vec<String> {
    let blocks = blocks(page);
    let mut script =
        "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n".to_owned();
    for block in blocks.iter().filter(|block| block.is("run")) {
        script.push_str(&format!(
            "{}echo '{SEPARATOR}'\n",
            replacements.apply(&block.text)
        ));
    }
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir(folder);
    command.env("PATH", path).stdin(Stdio::null());
    let (out, err) = (folder.join("stdout"), folder.join("stderr"));
    command.stdout(fs::File::create(&out).unwrap());
    command.stderr(fs::File::create(&err).unwrap());
    let mut shell = Shell(command.process_group(0).spawn().unwrap());
    let deadline = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = shell.0.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > deadline {
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let read = |path: &Path| {
        let mut text = String::new();
        let file = fs::File::open(path);
        file.and_then(|mut file| file.read_to_string(&mut text))
            .unwrap();
        text
    };
    let (out, err) = (read(&out), read(&err));
    assert!(
        status.is_some_and(|status| status.success()),
        "{page}: {status:?}\n{script}\n--- stdout\n{out}\n--- stderr\n{err}"
    );
    let printed: Vec<String> = out.split(SEPARATOR).map(str::to_owned).collect();
    compare(page, &blocks, &printed);
    printed
}

/// Asserts that each line of a block marked `same` was printed by the previous block.
fn compare(page: &str, blocks: &[Block], printed: &[String]) {
    let mut runs = 0;
    for block in blocks {
        if block.is("run") {
            runs += 1;
        } else if block.is("same") {
            let printed = &printed[runs - 1];
            for line in block.text.lines().filter(|line| *line != "...") {
                assert!(
                    printed
                        .lines()
                        .any(|known| known.trim_end() == line.trim_end()),
                    "{page} says that this is printed:\n{line}\nbut it is:\n{printed}"
                );
            }
        }
    }
}

/// A directory with a copy of the examples, and a PATH with the built programs.
fn set_up(more_path: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let examples = folder.path().join("examples");
    fs::create_dir(&examples).unwrap();
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), examples.join(entry.file_name())).unwrap();
    }
    let usual = std::env::var("PATH").unwrap();
    let path = format!("{}:{more_path}{usual}", programs().display());
    (folder, path)
}

#[test]
fn one_machine_in_five_minutes_works() {
    let (folder, path) = set_up("");
    let (http, grpc) = (free_port(), free_port());
    let copy = folder.path().join("copy").display().to_string();
    let replacements = Replacements(vec![
        // The last block removes the copy, but the test still reads a file in it.
        ("rm -r /tmp/albacore-tutorial", "true".to_owned()),
        ("/tmp/albacore-tutorial", copy.clone()),
        ("localhost:8080", format!("127.0.0.1:{http}")),
        (
            "albacore run ",
            format!("albacore run --http 127.0.0.1:{http} --grpc 127.0.0.1:{grpc} "),
        ),
    ]);
    let printed = run("one-machine.md", folder.path(), &path, &replacements);
    let has = |word: &str| printed.iter().any(|text| text.contains(word));
    for word in [
        "\"event\":\"pinned\"",
        "\"event\":\"worker_born\"",
        "\"outputs\"",
    ] {
        assert!(has(word), "{word}: {printed:#?}");
    }
    let metrics = fs::read_to_string(format!("{copy}/metrics.txt")).unwrap();
    let reference = fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let rows = docs::missing_rows(&reference, &metrics).concat();
    assert!(
        rows.is_empty(),
        "docs/reference/metrics.md lacks these rows:\n{rows}"
    );
}

#[test]
fn your_own_gunicorn_server_works() {
    let made = Command::new(root().join("tests/python-env.sh"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let python = String::from_utf8(made.stdout).unwrap();
    let (folder, path) = set_up(&format!("{}/bin:", python.trim()));
    let port = free_port();
    let file = folder.path().join("examples/gunicorn.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("127.0.0.1:8000", &format!("127.0.0.1:{port}")),
    )
    .unwrap();
    let replacements = Replacements(vec![
        (
            "/tmp/gunicorn.jsonl",
            folder.path().join("gunicorn.jsonl").display().to_string(),
        ),
        ("localhost:8000", format!("127.0.0.1:{port}")),
    ]);
    let printed = run("gunicorn.md", folder.path(), &path, &replacements);
    let has = |word: &str| printed.iter().any(|text| text.contains(word));
    for word in [
        "\"event\":\"pinned\"",
        "\"rank\":0",
        "\"rank\":1",
        "\"rows\": 100",
    ] {
        assert!(has(word), "{word}: {printed:#?}");
    }
}

/// The files that tests of the chart and of the controller apply to a real API server.
const APPLIED: [&str; 3] = ["examples", "charts/albacore", "manifests"];

#[test]
fn commands_of_the_cluster_tutorial_are_parsed_and_their_files_exist() {
    let blocks = blocks("cluster.md");
    let mut commands = 0;
    for block in blocks.iter().filter(|block| block.is("cluster")) {
        for line in block.text.lines() {
            commands += 1;
            let words = words(line);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words[..] {
                ["kubectl", "albacore", ref arguments @ ..] => is_parsed(arguments),
                ["kubectl", "apply" | "delete", .., file] | ["helm", "install", _, file, ..] => {
                    let is_applied = APPLIED.iter().any(|known| file.starts_with(known));
                    assert!(is_applied && root().join(file).exists(), "{line}");
                }
                ["kubectl", "patch", .., patch] => {
                    let patch: serde_json::Value = serde_json::from_str(patch).unwrap();
                    are_fields(&patch);
                }
                ["kubectl" | "helm", ..] => {}
                _ => panic!("{line}: neither kubectl nor helm"),
            }
        }
    }
    assert!(commands > 10, "{commands}");
}

/// Words of a command line; single quotes group words.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Asserts that `albacore` parses these arguments: without a cluster it fails, but not with a usage
/// error.
fn is_parsed(arguments: &[&str]) {
    let program: PathBuf = programs().join("albacore");
    let mut command = Command::new(program);
    command.args(arguments).env("KUBECONFIG", "/nowhere/config");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
}

/// Asserts that every field of a patch is in the definition.
fn are_fields(patch: &serde_json::Value) {
    let crd = albacore_api::inference_deployment_crd();
    let mut schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut value = patch;
    while let Some((name, below)) = value.as_object().and_then(|fields| fields.iter().next()) {
        schema = &schema["properties"][name];
        assert!(schema.is_object(), "{patch}: {name} is no field");
        value = below;
    }
}
