//! Starts and stops etcd and kube-apiserver.

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::api_proxy::ApiProxy;
use crate::certificates::Authority;
use crate::program::{Program, programs};
use crate::test_network::TestNetwork;
use crate::{TestbedError, kubeconfig};

/// Group with all permissions.
const ADMINISTRATORS: &str = "system:masters";

/// Client name of the API server at the backends of an `APIService`.
const AGGREGATOR: &str = "kube-aggregator";

/// Audit policy: every request, without bodies, so that tests can count the reads and writes of a
/// client.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// Options of a control plane.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Also runs kube-controller-manager: Deployments create pods; namespaces and owned objects are
    /// deleted.
    pub controller_manager: bool,
    /// Additional flags of kube-controller-manager.
    pub manager: Vec<String>,
    /// Additional flags of the API server, which override the default ones.
    pub api_server: Vec<String>,
}

/// Network and folder of a control plane.
#[derive(Clone, Debug)]
struct Place {
    /// Address of its servers.
    pub(crate) address: Ipv4Addr,
    /// Command prefix that enters the network; empty for the current one.
    pub(crate) command_prefix: Vec<OsString>,
    /// Parent of its folder.
    pub(crate) parent: PathBuf,
}

/// A running control plane. Its files are in one temporary folder; all of it is removed on drop.
#[derive(Debug)]
pub struct ControlPlane {
    place: Place,
    clients: Vec<Program>,
    proxy: ApiProxy,
    apiserver: Program,
    etcd: Program,
    arguments: Vec<OsString>,
    programs: PathBuf,
    authority: Authority,
    address: String,
    admin: PathBuf,
    folder: TempDir,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready.
    ///
    /// # Errors
    /// The programs cannot be built or started, or are not ready in time.
    pub fn start(options: &Options) -> Result<Self, TestbedError> {
        let here = Place {
            address: Ipv4Addr::LOCALHOST,
            command_prefix: Vec::new(),
            parent: std::env::temp_dir(),
        };
        Self::start_at(here, options)
    }

    /// Starts a control plane in `network`, at [`TestNetwork::ADDRESS`].
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub fn start_in(network: &TestNetwork, options: &Options) -> Result<Self, TestbedError> {
        let place = Place {
            address: TestNetwork::ADDRESS,
            command_prefix: network.command_prefix(),
            parent: network.folder().to_owned(),
        };
        Self::start_at(place, options)
    }

    /// Starts a control plane at another place.
    fn start_at(place: Place, options: &Options) -> Result<Self, TestbedError> {
        let programs = programs()?;
        let folder = TempDir::with_prefix_in("albacore-testbed-", &place.parent)
            .map_err(TestbedError::file("a temporary folder"))?;
        let authority = Authority::new()?;
        let [client, peer, port] = free_ports()?;
        let address = format!("{}:{port}", place.address);
        write_secrets(folder.path(), &authority, place.address)?;
        let admin = authority.client("admin", Some(ADMINISTRATORS))?;
        let admin = kubeconfig::write(folder.path(), "admin", &admin, &address)?;
        let etcd = start_etcd(&programs, folder.path(), &place, client, peer)?;
        let mut arguments = apiserver_arguments(folder.path(), place.address, client, port);
        arguments.extend(options.api_server.iter().map(OsString::from));
        let apiserver = start_apiserver(&programs, folder.path(), &place, &arguments)?;
        let kubectl = command_line(&place, &programs.join("kubectl"));
        let mut plane = Self {
            clients: Vec::new(),
            proxy: ApiProxy::start(&kubectl, &admin, folder.path())?,
            place,
            apiserver,
            etcd,
            arguments,
            programs,
            authority,
            address,
            admin,
            folder,
        };
        plane.wait_until_ready()?;
        if options.controller_manager {
            plane.start_controller_manager(&options.manager)?;
        }
        Ok(plane)
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.admin
    }

    /// Kubeconfig of a user with this name and group; RBAC determines its permissions.
    ///
    /// # Errors
    /// The certificate cannot be created or written.
    pub fn kubeconfig_of(&self, user: &str, group: Option<&str>) -> Result<PathBuf, TestbedError> {
        let identity = self.authority.client(user, group)?;
        let file: String = user
            .chars()
            .map(|c| if c.is_alphanumeric() { c } else { '-' })
            .collect();
        kubeconfig::write(self.folder.path(), &file, &identity, &self.address)
    }

    /// Address of the API server, as `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Address of etcd, as `127.0.0.1:PORT`, without encryption.
    pub fn etcd_address(&self) -> String {
        let mut words = self.arguments.iter().filter_map(|word| word.to_str());
        let address = words.find_map(|word| word.strip_prefix("--etcd-servers=http://"));
        address.unwrap_or_default().to_owned()
    }

    /// Process ids of etcd and of the API server.
    pub fn processes(&self) -> [u32; 2] {
        [self.etcd.process(), self.apiserver.process()]
    }

    /// Kubeconfig of a service account, with a token like that of its pods. With `pod` (of that
    /// account) the token is bound to the pod and its node; otherwise to neither.
    ///
    /// # Errors
    /// The account or pod does not exist, or the file cannot be written.
    pub fn kubeconfig_of_account(
        &self,
        namespace: &str,
        account: &str,
        pod: Option<&str>,
    ) -> Result<PathBuf, TestbedError> {
        let token = self.token_of_account(namespace, account, pod)?;
        let file = format!("{namespace}-{account}-{}", pod.unwrap_or("alone"));
        kubeconfig::write_token(self.folder.path(), &file, &token, &self.address)
    }

    /// A folder with `token`, `ca.crt` and `namespace`, like the volume that a kubelet mounts into
    /// the pods of a service account.
    ///
    /// # Errors
    /// The account does not exist, or the folder cannot be written.
    pub fn mount_of_account(
        &self,
        namespace: &str,
        account: &str,
    ) -> Result<PathBuf, TestbedError> {
        let token = self.token_of_account(namespace, account, None)?;
        let folder = self.folder.path().join(format!("{namespace}-{account}"));
        std::fs::create_dir_all(&folder).map_err(TestbedError::file(&folder))?;
        let files = [
            ("token", token),
            ("ca.crt", self.authority.certificate()),
            ("namespace", namespace.to_owned()),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(TestbedError::file(path))?;
        }
        Ok(folder)
    }

    fn token_of_account(
        &self,
        namespace: &str,
        account: &str,
        pod: Option<&str>,
    ) -> Result<String, TestbedError> {
        let mut arguments = vec!["create", "token", account, "--namespace", namespace];
        if let Some(pod) = pod {
            arguments.extend(["--bound-object-kind", "Pod", "--bound-object-name", pod]);
        }
        let output = self.kubectl(&arguments)?;
        if !output.status.success() {
            return Err(TestbedError::Kubectl {
                command: arguments.join(" "),
                message: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Runs kubectl as an administrator.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<Output, TestbedError> {
        self.run("kubectl", arguments)
    }

    /// Reads an object or a list at `path` as an administrator, for tests that poll: it starts no
    /// process.
    ///
    /// # Errors
    /// The API server does not respond, or with a status other than 200.
    pub fn read(&self, path: &str) -> Result<Value, TestbedError> {
        let answer = self
            .proxy
            .read(path)
            .and_then(|text| serde_json::from_str(&text).map_err(std::io::Error::other));
        answer.map_err(TestbedError::file(path))
    }

    /// Objects of the collection at `path` that match a label selector; items have no `kind`.
    /// Starts no process, like [`ControlPlane::read`].
    ///
    /// # Errors
    /// As [`ControlPlane::read`].
    pub fn list(&self, path: &str, labels: &str) -> Result<Vec<Value>, TestbedError> {
        let mut found = self.read(&format!("{path}?labelSelector={labels}"))?;
        let items = found["items"].take();
        Ok(items.as_array().cloned().unwrap_or_default())
    }

    /// Runs a program of the cluster (kubectl, helm) as an administrator.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<Output, TestbedError> {
        let binary = self.programs.join(program);
        command(&self.place, &binary)
            .args(arguments)
            .env("KUBECONFIG", &self.admin)
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .output()
            .map_err(TestbedError::file(binary))
    }

    /// Folder with all files of the control plane.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Certificate authority trusted by the API server, for its clients and for the servers that it
    /// calls.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Folder with kubectl, helm and the programs of Kubernetes.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Applies custom resource definitions (a file or a folder) and waits until the API server
    /// serves them.
    ///
    /// # Errors
    /// kubectl cannot be run, or they are not served in time.
    pub fn serve_crds(&mut self, path: &Path) -> Result<(), TestbedError> {
        let kubectl = command_line(&self.place, &self.programs.join("kubectl"));
        let admin = self.admin.clone();
        let succeeds = |arguments: &[&OsStr]| succeeds(&kubectl, &admin, arguments);
        // Some definitions are too long for the annotation that a client-side apply adds.
        let apply = ["apply", "--server-side", "--force-conflicts", "-f"].map(OsStr::new);
        let apply = [&apply[..], &[path.as_os_str()]].concat();
        // kubectl fails on a definition that has no condition yet, so the wait is retried.
        let wait = ["wait", "--for=condition=Established", "crd", "--all"].map(OsStr::new);
        self.apiserver
            .wait_until(|| succeeds(&apply) && succeeds(&wait))
    }

    /// All requests so far, one JSON object per line, from the API server's audit log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn audit_log(&self) -> Result<String, TestbedError> {
        let path = self.folder.path().join("audit.log");
        std::fs::read_to_string(&path).map_err(TestbedError::file(path))
    }

    /// Kills the API server, until [`ControlPlane::restart_api_server`]. etcd and the stored
    /// objects remain.
    pub fn stop_api_server(&mut self) {
        self.apiserver.kill();
    }

    /// Kills the API server and starts it again: watches are interrupted, stored objects are kept.
    ///
    /// # Errors
    /// It does not become ready.
    pub fn restart_api_server(&mut self) -> Result<(), TestbedError> {
        self.apiserver.kill();
        let folder = self.folder.path();
        self.apiserver = start_apiserver(&self.programs, folder, &self.place, &self.arguments)?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), TestbedError> {
        let proxy = &self.proxy;
        let is_there = |path| proxy.read(path).is_ok();
        self.apiserver
            .wait_until(|| is_there("/readyz") && is_there("/api/v1/namespaces/default"))
    }

    fn start_controller_manager(&mut self, flags: &[String]) -> Result<(), TestbedError> {
        let folder = self.folder.path().display();
        let more = format!(
            "--use-service-account-credentials\n--service-account-private-key-file={folder}/accounts.key\n\
             --root-ca-file={folder}/ca.crt\n{}",
            flags.join("\n")
        );
        let mut manager = self.start_client("kube-controller-manager", &more)?;
        let has_account = || {
            self.kubectl(&["get", "serviceaccount", "default", "-n", "default"])
                .is_ok_and(|output| output.status.success())
        };
        manager.wait_until(has_account)?;
        self.clients.push(manager);
        Ok(())
    }

    /// Starts kube-scheduler, which assigns pods to nodes.
    pub(crate) fn start_scheduler(&mut self) -> Result<(), TestbedError> {
        let scheduler = self.start_client("kube-scheduler", "")?;
        self.clients.push(scheduler);
        Ok(())
    }

    /// Starts a program that only needs the API server, with the additional arguments `more`, one
    /// per line.
    fn start_client(&self, name: &'static str, more: &str) -> Result<Program, TestbedError> {
        let config = self.kubeconfig_of(&format!("system:{name}"), None)?;
        let [port, _, _] = free_ports()?;
        let config = config.display();
        let folder = self.folder.path();
        let certificates = folder.join(name);
        let arguments = lines(&format!(
            "--kubeconfig={config}\n--authentication-kubeconfig={config}\n--authorization-kubeconfig={config}\n\
             --bind-address=127.0.0.1\n--secure-port={port}\n--cert-dir={}\n--leader-elect=false\n\
             --kube-api-qps=500\n--kube-api-burst=1000\n{more}",
            certificates.display()
        ));
        let log = folder.join(format!("{name}.log"));
        start(&self.place, name, &self.programs, &arguments, log)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // Clients first, so that none of them logs errors about a missing server.
        self.clients.clear();
        self.apiserver.kill();
        self.etcd.kill();
    }
}

/// The command prefix of a program.
fn command_line(place: &Place, binary: &Path) -> Vec<OsString> {
    let mut words = place.command_prefix.clone();
    words.push(binary.into());
    words
}

fn command(place: &Place, binary: &Path) -> Command {
    let words = command_line(place, binary);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn start(
    place: &Place,
    name: &'static str,
    programs: &Path,
    arguments: &[OsString],
    log: PathBuf,
) -> Result<Program, TestbedError> {
    let mut words = command_line(place, &programs.join(name));
    words.extend_from_slice(arguments);
    Program::start(name, Path::new(&words[0]), &words[1..], log)
}

fn succeeds(kubectl: &[OsString], config: &Path, arguments: &[&OsStr]) -> bool {
    let mut command = Command::new(&kubectl[0]);
    command.args(&kubectl[1..]);
    command.args(arguments).env("KUBECONFIG", config);
    let quiet = Stdio::null;
    command.stdin(quiet()).stdout(quiet()).stderr(quiet());
    command.status().is_ok_and(|status| status.success())
}

/// Three ports that are free at this time.
fn free_ports() -> Result<[u16; 3], TestbedError> {
    let listen =
        || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(TestbedError::file("a free port"));
    // Bound at the same time, so that they differ.
    let listeners = [listen()?, listen()?, listen()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener
            .local_addr()
            .map_err(TestbedError::file("a free port"))?
            .port();
    }
    Ok(ports)
}

fn write_secrets(
    folder: &Path,
    authority: &Authority,
    address: Ipv4Addr,
) -> Result<(), TestbedError> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(TestbedError::file(path))
    };
    let address = address.to_string();
    let hosts = [
        address.as_str(),
        "127.0.0.1",
        "::1",
        "10.96.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ];
    let server = authority.server("kube-apiserver", &hosts)?;
    let kubelets = authority.client("kube-apiserver", Some(ADMINISTRATORS))?;
    // Signs the tokens of service accounts; the public key is read from the certificate.
    let accounts = authority.server("service-accounts", &[])?;
    let aggregator = authority.client(AGGREGATOR, None)?;
    write("ca.crt", &authority.certificate())?;
    write("apiserver.crt", &server.certificate)?;
    write("apiserver.key", &server.key)?;
    write("kubelets.crt", &kubelets.certificate)?;
    write("kubelets.key", &kubelets.key)?;
    write("accounts.crt", &accounts.certificate)?;
    write("accounts.key", &accounts.key)?;
    write("aggregator.crt", &aggregator.certificate)?;
    write("aggregator.key", &aggregator.key)?;
    write("audit.yaml", AUDIT_POLICY)
}

fn start_etcd(
    programs: &Path,
    folder: &Path,
    place: &Place,
    client: u16,
    peer: u16,
) -> Result<Program, TestbedError> {
    let data = folder.join("etcd");
    let arguments = lines(&format!(
        "--name=testbed\n--data-dir={}\n--unsafe-no-fsync\n--log-level=warn\n\
         --listen-client-urls=http://127.0.0.1:{client}\n--advertise-client-urls=http://127.0.0.1:{client}\n\
         --listen-peer-urls=http://127.0.0.1:{peer}\n--initial-advertise-peer-urls=http://127.0.0.1:{peer}\n\
         --initial-cluster=testbed=http://127.0.0.1:{peer}",
        data.display()
    ));
    start(place, "etcd", programs, &arguments, folder.join("etcd.log"))
}

fn apiserver_arguments(folder: &Path, address: Ipv4Addr, etcd: u16, port: u16) -> Vec<OsString> {
    let folder = folder.display();
    // The endpoint of the Service `kubernetes` must not be a loopback address.
    let endpoints = if address.is_loopback() {
        "none"
    } else {
        "lease"
    };
    lines(&format!(
        "--etcd-servers=http://127.0.0.1:{etcd}\n--bind-address={address}\n--advertise-address={address}\n\
         --secure-port={port}\n--endpoint-reconciler-type={endpoints}\n--service-cluster-ip-range=10.96.0.0/16\n\
         --client-ca-file={folder}/ca.crt\n--tls-cert-file={folder}/apiserver.crt\n\
         --tls-private-key-file={folder}/apiserver.key\n--service-account-issuer=https://kubernetes.default.svc\n\
         --service-account-key-file={folder}/accounts.crt\n--service-account-signing-key-file={folder}/accounts.key\n\
         --kubelet-client-certificate={folder}/kubelets.crt\n--kubelet-client-key={folder}/kubelets.key\n\
         --proxy-client-cert-file={folder}/aggregator.crt\n--proxy-client-key-file={folder}/aggregator.key\n\
         --requestheader-client-ca-file={folder}/ca.crt\n--requestheader-allowed-names={AGGREGATOR}\n\
         --requestheader-username-headers=X-Remote-User\n--requestheader-group-headers=X-Remote-Group\n\
         --requestheader-extra-headers-prefix=X-Remote-Extra-\n\
         --kubelet-certificate-authority={folder}/ca.crt\n--kubelet-preferred-address-types=InternalIP\n\
         --authorization-mode=Node,RBAC\n--enable-admission-plugins=NodeRestriction\n--allow-privileged=true\n\
         --audit-policy-file={folder}/audit.yaml\n--audit-log-path={folder}/audit.log\n--audit-log-mode=blocking"
    ))
}

fn start_apiserver(
    programs: &Path,
    folder: &Path,
    place: &Place,
    arguments: &[OsString],
) -> Result<Program, TestbedError> {
    let log = folder.join("apiserver.log");
    start(place, "kube-apiserver", programs, arguments, log)
}

/// Splits the text into arguments, one per line.
fn lines(text: &str) -> Vec<OsString> {
    text.lines().map(OsString::from).collect()
}
