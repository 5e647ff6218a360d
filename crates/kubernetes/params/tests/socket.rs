//! Tests of the socket of `albacore run`: who may connect, and the command line.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests fail by panicking

mod running;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use albacore_proto::params::WatchRequest;
use albacore_proto::params::params_client::ParamsClient;
use running::{Agent, Params, next, pipe, pod, rows};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

async fn client(socket: &Path) -> ParamsClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    ParamsClient::new(endpoint.connect().await.unwrap())
}

fn own_uid() -> String {
    let said = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn the_user_of_the_socket_gets_the_one_pod_without_an_address() {
    let (folder, path) = pipe();
    let socket = folder.path().join("params.sock");
    let arguments = ["--unix", socket.to_str().unwrap(), "--uid", &own_uid()];
    let mut params = Params::start(&path, &arguments);
    assert!(params.grpc.is_none(), "it listens nowhere else");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[pod("a", None, 11), pod("b", Some("127.0.0.1"), 22)]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let mut client = self::client(&socket).await;
    let mut stream = client.watch(WatchRequest {}).await.unwrap().into_inner();
    assert_eq!(rows(&next(&mut stream).await.unwrap()), 11);
    agent.send_snapshot(&[pod("a", None, 12), pod("c", None, 13)]);
    let status = next(&mut stream).await.unwrap_err();
    assert!(status.message().contains("several deployments"), "{status}");
    // After SIGKILL, the leftover socket does not prevent a restart.
    params.kill();
    assert!(socket.exists());
    let params = Params::start(&path, &arguments);
    drop(agent);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[pod("a", None, 14)]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let mut client = self::client(&socket).await;
    let mut stream = client.watch(WatchRequest {}).await.unwrap().into_inner();
    assert_eq!(rows(&next(&mut stream).await.unwrap()), 14);
}

#[tokio::test]
async fn another_user_is_refused() {
    let (folder, path) = pipe();
    let socket = folder.path().join("params.sock");
    let other = own_uid().parse::<u32>().unwrap() + 1;
    let arguments = [
        "--unix",
        socket.to_str().unwrap(),
        "--uid",
        &other.to_string(),
    ];
    let params = Params::start(&path, &arguments);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[pod("a", None, 11)]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let status = client(&socket)
        .await
        .watch(WatchRequest {})
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(
        status.message().contains("is not the user of this socket"),
        "{status}"
    );
    assert_eq!(
        params.metric("albacore_params_refused_total{reason=\"user\"}"),
        1.0
    );
}

#[test]
fn invalid_arguments_are_refused_with_a_message() {
    let said = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_albacore-params"));
        let output = command.args(arguments).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    for (arguments, code, words) in [
        (&[][..], 64, "--feed"),
        (&["--feed", "/f"], 64, "--grpc"),
        (&["--feed", "/f", "--unix", "/s"], 64, "--uid"),
        (&["--feed", "/f", "--grpc", "localhost"], 64, "--grpc"),
        (
            &["--feed", "/f", "--grpc", "127.0.0.1:0", "--log", "loud"],
            64,
            "--log",
        ),
        (
            &["--feed", "/f", "--grpc", "192.0.2.1:1"],
            1,
            "cannot listen on --grpc 192.0.2.1:1",
        ),
        (
            &["--feed", "/f", "--unix", "/dev/null", "--uid", "0"],
            1,
            "--unix /dev/null is in use",
        ),
    ] {
        let (found, text) = said(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
}
