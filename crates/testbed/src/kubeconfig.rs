//! Kubeconfig files, one for each who talks to the API server.

use std::path::{Path, PathBuf};

use crate::{Identity, TestbedError};

/// Writes `NAME.crt`, `NAME.key` and `NAME.kubeconfig` into `folder`, which holds `ca.crt`; the kubeconfig's path.
pub(crate) fn write(
    folder: &Path,
    name: &str,
    identity: &Identity,
    address: &str,
) -> Result<PathBuf, TestbedError> {
    let write = |ending: &str, text: &str| {
        let path = folder.join(format!("{name}.{ending}"));
        std::fs::write(&path, text).map_err(TestbedError::file(&path))?;
        Ok(path)
    };
    let certificate = write("crt", &identity.certificate)?;
    let key = write("key", &identity.key)?;
    write(
        "kubeconfig",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: testbed\n\
             clusters:\n- name: testbed\n  cluster: {{server: \"https://{address}\", certificate-authority: {}}}\n\
             users:\n- name: testbed\n  user: {{client-certificate: {}, client-key: {}}}\n\
             contexts:\n- name: testbed\n  context: {{cluster: testbed, user: testbed}}\n",
            folder.join("ca.crt").display(),
            certificate.display(),
            key.display(),
        ),
    )
}
