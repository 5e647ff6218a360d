//! Kubeconfig files, one for each client of the API server.

use std::path::{Path, PathBuf};

use crate::{Identity, TestbedError};

/// Writes `NAME.crt`, `NAME.key` and `NAME.kubeconfig` into `folder`, which contains `ca.crt`;
/// returns the path of the kubeconfig.
pub(crate) fn write(
    folder: &Path,
    name: &str,
    identity: &Identity,
    address: &str,
) -> Result<PathBuf, TestbedError> {
    let certificate = write_file(folder, name, "crt", &identity.certificate)?;
    let key = write_file(folder, name, "key", &identity.key)?;
    let user = format!(
        "client-certificate: {}, client-key: {}",
        certificate.display(),
        key.display()
    );
    write_config(folder, name, &user, address)
}

/// Writes `NAME.kubeconfig` with a bearer token; returns its path.
pub(crate) fn write_token(
    folder: &Path,
    name: &str,
    token: &str,
    address: &str,
) -> Result<PathBuf, TestbedError> {
    write_config(folder, name, &format!("token: {token}"), address)
}

fn write_config(
    folder: &Path,
    name: &str,
    user: &str,
    address: &str,
) -> Result<PathBuf, TestbedError> {
    let authority = folder.join("ca.crt");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: testbed\n\
         clusters:\n- name: testbed\n  cluster: {{server: \"https://{address}\", certificate-authority: {}}}\n\
         users:\n- name: testbed\n  user: {{{user}}}\n\
         contexts:\n- name: testbed\n  context: {{cluster: testbed, user: testbed}}\n",
        authority.display(),
    );
    write_file(folder, name, "kubeconfig", &text)
}

fn write_file(
    folder: &Path,
    name: &str,
    ending: &str,
    text: &str,
) -> Result<PathBuf, TestbedError> {
    let path = folder.join(format!("{name}.{ending}"));
    std::fs::write(&path, text).map_err(TestbedError::file(&path))?;
    Ok(path)
}
