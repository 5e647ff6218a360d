//! Files of a node: certificates, configurations of its programs, and their command lines.

use std::path::Path;

use super::emulated::Emulated;
use super::host::PAUSE;
use super::{Machine, NodeNumber, NodeOptions, files};
use crate::supervisor::{NodeSpec, Service};
use crate::test_network::TestNetwork;
use crate::{ControlPlane, TestbedError};

/// Writes the files into the folder of `network`.
///
/// # Errors
/// A file or a certificate cannot be created.
pub(super) fn write(
    network: &TestNetwork,
    plane: &ControlPlane,
    programs: &Path,
    number: NodeNumber,
    options: &NodeOptions,
) -> Result<(), TestbedError> {
    let folder = network.folder();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(TestbedError::file(path))
    };
    let make = |name: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).map_err(TestbedError::file(path))
    };
    let name = &options.name;
    let address = options.machine.address(number).to_string();
    let kubelet = plane.authority().server(name, &[name, &address])?;
    let user = format!("system:node:{name}");
    let config = plane.kubeconfig_of(&user, Some("system:nodes"))?;
    let proxy = plane.kubeconfig_of("system:kube-proxy", None)?;
    std::os::unix::fs::symlink(&proxy, folder.join("proxy.kubeconfig"))
        .map_err(TestbedError::file(&proxy))?;
    make("cni")?;
    make("kubelet/seccomp")?;
    for (profile, text) in &options.seccomp_profiles {
        let above = Path::new(profile).parent().unwrap_or(Path::new(""));
        make(&format!("kubelet/seccomp/{}", above.display()))?;
        write(&format!("kubelet/seccomp/{profile}"), text)?;
    }
    write("kubelet.crt", &kubelet.certificate)?;
    write("kubelet.key", &kubelet.key)?;
    write("resolv.conf", "")?;
    write("cni/pods.conflist", &files::cni(number))?;
    write(
        "containerd.toml",
        &files::containerd(folder, programs, PAUSE),
    )?;
    let authority = plane.folder().join("ca.crt");
    write("kubelet.yaml", &files::kubelet(folder, &authority, options))?;
    write("proxy.yaml", &files::proxy(folder, name))?;
    let spec = node_spec(
        folder,
        plane.programs(),
        programs,
        &config,
        &address,
        options,
    );
    let spec = serde_json::to_string(&spec).map_err(|error| TestbedError::Node {
        message: error.to_string(),
    })?;
    write("node.json", &spec)
}

fn node_spec(
    folder: &Path,
    kubernetes: &Path,
    programs: &Path,
    config: &Path,
    address: &str,
    options: &NodeOptions,
) -> NodeSpec {
    let NodeOptions { name, machine, .. } = options;
    let socket = folder.join("containerd.sock");
    let path = format!(
        "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        programs.display()
    );
    let service = |folder: &Path, name: &str, arguments: &[String], after: Option<&Path>| {
        let mut command = vec![folder.join(name).display().to_string()];
        command.extend_from_slice(arguments);
        Service {
            name: name.to_owned(),
            command,
            after: after.map(Path::to_owned),
            path: path.clone(),
        }
    };
    let here = folder.display();
    let kubelet = [
        format!("--config={here}/kubelet.yaml"),
        format!("--kubeconfig={}", config.display()),
        format!("--root-dir={here}/kubelet"),
        format!("--cert-dir={here}/kubelet/pki"),
        format!("--hostname-override={name}"),
        format!("--node-ip={address}"),
    ];
    let command_server = (*machine == Machine::Emulated).then(|| Service {
        name: "serve".to_owned(),
        command: Emulated::service(),
        after: None,
        path: path.clone(),
    });
    NodeSpec {
        host_name: name.to_owned(),
        services: command_server
            .into_iter()
            .chain([
                service(
                    programs,
                    "containerd",
                    &[format!("--config={here}/containerd.toml")],
                    None,
                ),
                service(
                    kubernetes,
                    "kube-proxy",
                    &[format!("--config={here}/proxy.yaml")],
                    None,
                ),
                service(kubernetes, "kubelet", &kubelet, Some(&socket)),
            ])
            .collect(),
    }
}
