//! Servers of a cell: one whose placement is switched by editing its file, as a user would do, and
//! one for each OpenMP setting, which a process reads at startup.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use albacore_live_bench::service::Service;
use albacore_os::Pid;
use serde_json::{Value, json};

use crate::grid::Cell;
use crate::spec::{Model, Policy, Spec, Template};

/// Startup timeout, including loading of the model and placement of threads.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(60);

/// Timeout of a policy change.
pub(crate) const SWITCH_PATIENCE: Duration = Duration::from_secs(20);

/// Shutdown timeout: longer than a server takes to answer accepted requests.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(45);

/// Error that prevents the measurement of a cell, as a sentence.
pub(crate) type CellError = String;

/// Thread binding of OpenMP, fixed at process start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ProcBind {
    Unset,
    Spread,
    Close,
}

impl ProcBind {
    fn of(policy: Policy) -> Self {
        match policy {
            Policy::BindSpread => Self::Spread,
            Policy::BindClose => Self::Close,
            _ => Self::Unset,
        }
    }

    fn value(self) -> Option<&'static str> {
        match self {
            Self::Unset => None,
            Self::Spread => Some("spread"),
            Self::Close => Some("close"),
        }
    }
}

/// The running servers of a cell.
pub(crate) struct Servers<'a> {
    spec: &'a Spec,
    cell: &'a Cell,
    model: &'a Model,
    /// Folder of deployment files.
    folder: &'a Path,
    running: Vec<Running>,
}

/// A server with a policy in force.
pub(crate) struct Running {
    proc_bind: ProcBind,
    service: Service,
    file: PathBuf,
    port: u16,
    pub(crate) address: SocketAddr,
}

impl Running {
    /// Root of the server's process tree.
    pub(crate) fn pid(&self) -> Pid {
        Pid(i32::try_from(self.service.pid()).unwrap_or_default())
    }
}

impl<'a> Servers<'a> {
    pub(crate) fn new(spec: &'a Spec, cell: &'a Cell, folder: &'a Path) -> Option<Self> {
        let model = spec.models.iter().find(|model| model.name == cell.model)?;
        Some(Self {
            spec,
            cell,
            model,
            folder,
            running: Vec::new(),
        })
    }

    /// A server with the policy in force; started if not running yet.
    ///
    /// # Errors
    /// It does not start, or the policy does not take effect.
    pub(crate) fn with_policy(&mut self, policy: Policy) -> Result<&Running, CellError> {
        let proc_bind = ProcBind::of(policy);
        let known = |running: &Running| running.proc_bind == proc_bind;
        let index = match self.running.iter().position(known) {
            Some(index) => index,
            None => {
                let begin = log_length(&self.log());
                let started = self.start(policy);
                let reason = |e| last_line(&self.log(), begin).unwrap_or_else(|| sentence(&e));
                self.running.push(started.map_err(reason)?);
                self.running.len() - 1
            }
        };
        let running = &mut self.running[index];
        let text = deployment(self.spec, self.cell, self.model, policy, running.port);
        write(&running.file, &text).map_err(|e| format!("{}: {e}", running.file.display()))?;
        let (name, mode) = placement(policy);
        let placed = running.service.placement(name, mode, SWITCH_PATIENCE);
        placed.map_err(|e| sentence(&e))?;
        Ok(&self.running[index])
    }

    /// Stops all servers.
    ///
    /// # Errors
    /// A server does not exit; the error names it.
    pub(crate) fn stop(&mut self) -> Result<(), CellError> {
        for running in self.running.drain(..) {
            let stopped = running.service.stop(STOP_PATIENCE);
            stopped.map_err(|e| sentence(&e))?;
        }
        Ok(())
    }

    /// Log with the standard error of servers.
    fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    fn start(&self, policy: Policy) -> anyhow::Result<Running> {
        let proc_bind = ProcBind::of(policy);
        let name = proc_bind.value().unwrap_or("server");
        let file = self.folder.join(format!("{name}.yaml"));
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        write(
            &file,
            &deployment(self.spec, self.cell, self.model, policy, port),
        )?;
        let own = self.spec.template.is_some();
        let options: &[&str] = match own {
            true => &[],
            false => &["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"],
        };
        let mut service = Service::start_with_log(&file, options, &self.log())?;
        let address = match own {
            true => {
                let address = SocketAddr::from(([127, 0, 0, 1], port));
                service.placed(START_PATIENCE)?;
                wait_for_listener(address)?;
                address
            }
            false => {
                let address = service.listening()?;
                service.ready(START_PATIENCE)?;
                address
            }
        };
        Ok(Running {
            proc_bind,
            service,
            file,
            port,
            address,
        })
    }
}

fn log_length(log: &Path) -> u64 {
    std::fs::metadata(log).map_or(0, |file| file.len())
}

/// The last line that a server logged, which contains the reason of its exit; its output starts at
/// `begin`.
fn last_line(log: &Path, begin: u64) -> Option<String> {
    let bytes = std::fs::read(log).ok()?;
    let own = bytes.get(usize::try_from(begin).ok()?..)?;
    let text = String::from_utf8_lossy(own);
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    Some(line.to_owned())
}

fn wait_for_listener(address: SocketAddr) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_PATIENCE;
    while TcpStream::connect(address).is_err() {
        anyhow::ensure!(
            Instant::now() < deadline,
            "the server does not listen on {address}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// An error with its causes, on one line.
fn sentence(error: &anyhow::Error) -> CellError {
    let text = format!("{error:#}");
    text.lines().next().unwrap_or_default().to_owned()
}

/// Policy and mode of a deployment.
fn placement(policy: Policy) -> (&'static str, Option<&'static str>) {
    match policy {
        Policy::Kernel | Policy::BindSpread | Policy::BindClose => ("None", None),
        Policy::RoundRobin => ("RoundRobin", None),
        Policy::Scatter => ("Tuna", Some("Scatter")),
        Policy::Compact => ("Tuna", Some("Compact")),
    }
}

/// The InferenceDeployment of a cell under a policy.
fn deployment(spec: &Spec, cell: &Cell, model: &Model, policy: Policy, port: u16) -> Value {
    let (name, mode) = placement(policy);
    let mut deployment = json!({
        "apiVersion": "albacore.dev/v1beta1",
        "kind": "InferenceDeployment",
        "metadata": {"name": spec.name},
        "spec": {
            "workers": cell.workers,
            "threads": cell.threads,
            "mode": mode.unwrap_or("Scatter"),
            "placement": {"policy": name},
        },
    });
    let fields = &mut deployment["spec"];
    match &spec.template {
        None => {
            let uri = format!("file://{}", model.file.display());
            fields["models"] = json!([{"name": model.name, "uri": uri}]);
        }
        Some(template) => {
            let fill = |text: &String| {
                text.replace("{workers}", &cell.workers.to_string())
                    .replace("{threads}", &cell.threads.to_string())
                    .replace("{port}", &port.to_string())
                    .replace("{model}", &model.file.to_string_lossy())
                    .replace("{folder}", &spec.folder.to_string_lossy())
            };
            fields["template"] = pod_template(template, fill, ProcBind::of(policy));
        }
    }
    deployment
}

fn pod_template(
    template: &Template,
    fill: impl Fn(&String) -> String,
    proc_bind: ProcBind,
) -> Value {
    let all = |texts: &[String]| -> Vec<String> { texts.iter().map(&fill).collect() };
    let own = template.env.iter();
    let mut env: Vec<Value> = own
        .map(|variable| json!({"name": variable.name, "value": fill(&variable.value)}))
        .collect();
    if let Some(value) = proc_bind.value() {
        env.push(json!({"name": "OMP_PROC_BIND", "value": value}));
        env.push(json!({"name": "OMP_PLACES", "value": "threads"}));
    }
    json!({"spec": {"containers": [{
        "name": "server",
        "command": all(&template.command),
        "args": all(&template.args),
        "env": env,
    }]}})
}

/// Replaces a file atomically.
fn write(file: &Path, deployment: &Value) -> std::io::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{deployment:#}\n"))?;
    std::fs::rename(&new, file)
}
