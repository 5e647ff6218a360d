//! A minimal controller for the tests of this crate: contends for a lease and writes all the time,
//! whether it leads or not, so that the tests detect writes that should have been rejected. Not
//! shipped.
//!
//! `contender KUBECONFIG NAME LEASE_SECONDS [CRASH_AFTER_WRITES]` prints a line for each change:
//! `leading`, `lost`, `refused` (the first after each loss). SIGTERM releases the lease.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use albacore_cluster::{
    ApiResource, Cluster, ClusterError, ConnectOptions, Lease, LeaseOptions, MetricsRegistry,
    Shutdown, Writes, unique,
};
use albacore_program::{LogFormat, start_logs};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

/// Pause between two writes: well within the rate limit.
const WRITE_PERIOD: Duration = Duration::from_millis(40);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    start_logs(LogFormat::Text, "info")?;
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or_else(|| format!("{what} is missing"));
    let kubeconfig = next("KUBECONFIG")?;
    let name = next("NAME")?;
    let seconds = next("LEASE_SECONDS")?.parse()?;
    let crash = next("CRASH_AFTER_WRITES").ok();
    let options = ConnectOptions {
        kubeconfig: Some(kubeconfig.into()),
        manager: "contender",
        writes: Writes::WhileLeading,
        crash_after_writes: crash.map(|n| n.parse()).transpose()?,
    };
    let shutdown = Shutdown::on_signals()?;
    let cluster = Cluster::connect(&options, &MetricsRegistry::new()).await?;
    let mut lease = LeaseOptions::new("default", "contest", unique(&name));
    lease.time = Duration::from_secs(seconds);
    let lease = Lease::start(&cluster, lease);
    let kind = ApiResource::erase::<ConfigMap>(&());
    let (mut was_leading, mut was_refused, mut number) = (false, false, 0);
    while !shutdown.is_triggered() {
        tokio::time::sleep(WRITE_PERIOD).await;
        if lease.is_held() != was_leading {
            was_leading = !was_leading;
            println!("{}", if was_leading { "leading" } else { "lost" });
        }
        number += 1;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "contest", "namespace": "default"},
            "data": {"by": name, "number": number.to_string()},
        });
        let is_refused = match cluster.apply(&kind, &map).await {
            Ok(_) => false,
            Err(ClusterError::NotLeading { .. }) => true,
            Err(error) => {
                eprintln!("{error}");
                was_refused
            }
        };
        if is_refused && !was_refused {
            println!("refused");
        }
        was_refused = is_refused;
    }
    lease.release().await;
    Ok(())
}
