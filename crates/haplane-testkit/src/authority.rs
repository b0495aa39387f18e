//! A private certificate authority, for HTTPS with client certificates.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;

/// An authority whose certificates, all in PEM files, last as long as this value.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

/// The PEM files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Authority {
    /// A new authority with a key of its own.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).expect("to write ca.pem");
        Self { issuer, dir }
    }

    /// The PEM file with the authority's own certificate.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// A server's certificate for these names and addresses.
    pub fn server(&self, names: &[&str]) -> Certificate {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        self.issue(
            "server",
            CertificateParams::new(names).unwrap(),
            ExtendedKeyUsagePurpose::ServerAuth,
        )
    }

    /// A client's certificate.
    pub fn client(&self, name: &str) -> Certificate {
        self.issue(
            name,
            CertificateParams::default(),
            ExtendedKeyUsagePurpose::ClientAuth,
        )
    }

    fn issue(
        &self,
        name: &str,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Certificate {
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Certificate {
            certificate: write(self.dir.path(), &format!("{name}.pem"), &certificate.pem()),
            key: write(
                self.dir.path(),
                &format!("{name}-key.pem"),
                &key.serialize_pem(),
            ),
        }
    }
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let file = dir.join(name);
    std::fs::write(&file, text).expect("to write a PEM file");
    file
}
