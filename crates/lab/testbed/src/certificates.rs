//! Certificates of one temporary cluster: a certificate authority, and one identity for each client
//! and server.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

use crate::TestbedError;

/// Certificate authority of a cluster.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key, both PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    /// Private key, PKCS #8.
    pub key: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not be printed.
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates an authority.
    ///
    /// # Errors
    /// There is no randomness, or the algorithm is not supported.
    pub fn new() -> Result<Self, TestbedError> {
        let failed = |source| TestbedError::Certificate {
            name: "the authority".into(),
            source,
        };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name("albacore-testbed", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
        Ok(Self { issuer })
    }

    /// Certificate of the authority, PEM.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Certificate of a client; RBAC uses its common name and group.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn client(&self, common_name: &str, group: Option<&str>) -> Result<Identity, TestbedError> {
        self.sign(common_name, group, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Certificate of a server with these host names and addresses.
    ///
    /// # Errors
    /// There is no randomness, or a host name is invalid.
    pub fn server(&self, common_name: &str, hosts: &[&str]) -> Result<Identity, TestbedError> {
        self.sign(
            common_name,
            None,
            hosts,
            ExtendedKeyUsagePurpose::ServerAuth,
        )
    }

    fn sign(
        &self,
        common_name: &str,
        group: Option<&str>,
        hosts: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity, TestbedError> {
        let failed = |source| TestbedError::Certificate {
            name: common_name.into(),
            source,
        };
        let key = KeyPair::generate().map_err(failed)?;
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).map_err(failed)?;
        params.distinguished_name = name(common_name, group);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn name(common_name: &str, group: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(group) = group {
        name.push(DnType::OrganizationName, group);
    }
    name
}
