//! TLS to Consul: the only module that knows rustls.
//!
//! The files are read when a connection is made, so that a renewed certificate is used without a
//! restart. A server's certificate is always verified.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::consul::Address;
use crate::error::{StoreError, StoreErrorKind};

/// Whom to trust and how to show who we are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The authority that signed Consul's certificate; without it, those that the machine trusts.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate, for a Consul that asks for one.
    pub cert_file: Option<PathBuf>,
    /// The key of [`TlsSettings::cert_file`].
    pub key_file: Option<PathBuf>,
    /// The name that Consul's certificate carries, when it is not the host of the address
    /// (`CONSUL_TLS_SERVER_NAME`).
    pub server_name: Option<String>,
}

/// Reads the files and says what a handshake needs.
pub(crate) fn connector(settings: &TlsSettings) -> Result<TlsConnector, StoreError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| wrong("TLS cannot be set up").because(source))?
        .with_root_certificates(roots(settings.ca_file.as_deref())?);
    let config = match (&settings.cert_file, &settings.key_file) {
        (Some(cert), Some(key)) => {
            let pair = (certificates(cert)?, private_key(key)?);
            builder
                .with_client_auth_cert(pair.0, pair.1)
                .map_err(|source| {
                    let what = format!(
                        "the client certificate {} and the key {} do not go together",
                        cert.display(),
                        key.display()
                    );
                    wrong(&what).because(source)
                })?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => {
            return Err(wrong(
                "cert_file and key_file are set together or not at all",
            ));
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Shakes hands with the server of this name, which may speak plain HTTP at `plain` instead.
pub(crate) async fn handshake(
    connector: &TlsConnector,
    name: &str,
    plain: &Address,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, StoreError> {
    let server = ServerName::try_from(name.to_owned())
        .map_err(|source| wrong(&format!("{name:?} is not a name for TLS")).because(source))?;
    connector.connect(server, stream).await.map_err(|source| {
        let what = if is_no_tls(&source) {
            format!("the other side does not speak TLS: {plain}?")
        } else {
            format!("TLS with {name} failed: check ca_file, cert_file and key_file")
        };
        StoreError::new(StoreErrorKind::Unreachable, what).because(source)
    })
}

/// Whether what came back is no TLS record at all: a server of plain HTTP complains in its own language.
fn is_no_tls(error: &std::io::Error) -> bool {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::InvalidMessage(_)))
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|source| {
                    let what = format!(
                        "{} holds a certificate that is no authority",
                        path.display()
                    );
                    wrong(&what).because(source)
                })?;
            }
        }
        None => {
            // Single files of a system's store may be unreadable; what can be read counts.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(wrong("there is no authority to trust: set ca_file"));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let unreadable = || {
        wrong(&format!(
            "{} cannot be read as PEM certificates",
            path.display()
        ))
    };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| unreadable().because(source))?;
    if certificates.is_empty() {
        return Err(wrong(&format!("{} holds no certificate", path.display())));
    }
    Ok(certificates)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, StoreError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| {
        wrong(&format!("{} cannot be read as a PEM key", path.display())).because(source)
    })
}

fn wrong(what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Config, what)
}
