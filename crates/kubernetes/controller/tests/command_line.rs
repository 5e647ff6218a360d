//! The command line and the exit codes.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_albacore-controller"));
    command.args(arguments).env_clear().output().unwrap()
}

#[test]
fn help_names_every_flag_but_the_crash_switch() {
    let output = run(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    for flag in [
        "--server-image",
        "--params-url",
        "--watch-namespace",
        "--lease-namespace",
        "--lease-name",
        "--listen",
        "--kubeconfig",
        "--log",
        "--requests-per-second",
    ] {
        assert!(text.contains(flag), "{flag} is not in:\n{text}");
    }
    assert!(!text.contains("--crash-after-writes"));
}

#[test]
fn a_command_line_that_makes_no_sense_ends_with_64() {
    for arguments in [
        &[][..],
        &["--server-image"],
        &["--server-image", "x", "--listen", "nowhere"],
        &["--server-image", "x", "--log", "xml"],
        &["--server-image", "x", "--requests-per-second", "0"],
        &["--server-image", "x", "--params-url", "params"],
        &["--server-image", "x", "--params-url", "https://params:1"],
        &["--server-image", "x", "--params-url", "http://params"],
        &["--server-image", "x", "--unknown"],
    ] {
        let output = run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {said}");
        assert!(!said.is_empty());
    }
}

#[test]
fn an_unknown_cluster_exits_with_1_and_an_error() {
    let listen = ["--server-image", "x", "--listen", "127.0.0.1:0"];
    let missing = run(&[&listen[..], &["--kubeconfig", "/nowhere/config"]].concat());
    let said = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(missing.status.code(), Some(1), "{said}");
    assert!(said.contains("/nowhere/config"), "{said}");
    let no_pod = run(&listen);
    let said = String::from_utf8(no_pod.stderr).unwrap();
    assert_eq!(no_pod.status.code(), Some(1), "{said}");
    assert!(said.contains("service account"), "{said}");
}
