//! TLS of the services over TCP: Redis clients and scrapers. The files are read at the start, and again at SIGHUP.

mod caller;

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, ServerConnection};
use trine_base::failure::Failure;
use trine_base::interrupt;

pub use self::caller::{Encrypted, TlsCaller};

use crate::private::{self, Unread};

/// Bytes of a key file that are read; no key is near that long.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// The certificate for Redis clients and scrapers, and the CA for theirs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsArguments {
    /// Serve Redis clients and metrics over TLS with this certificate: a PEM file that includes the chain. At SIGHUP,
    /// the replica reloads it, the key and the CA.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate: a PEM file readable only by its owner.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Accept only clients with a certificate of this CA: a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
}

impl TlsArguments {
    /// Whether the services speak TLS.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// Whether a client has to show a certificate.
    #[must_use]
    pub fn asks_certificate(&self) -> bool {
        self.is_on() && self.tls_client_ca.is_some()
    }

    /// The same settings, as options of `trine serve`.
    #[must_use]
    pub fn as_serve_args(&self) -> Vec<OsString> {
        let given = [
            ("--tls-cert", &self.tls_cert),
            ("--tls-key", &self.tls_key),
            ("--tls-client-ca", &self.tls_client_ca),
        ];
        let options = given.into_iter().filter_map(|(option, path)| {
            let path = path.as_ref()?;
            Some([option.into(), path.clone().into_os_string()])
        });
        options.flatten().collect()
    }
}

/// The part of the log that tells of new certificates.
const TLS: &str = "tls";

/// The present certificate, key and client CA.
#[derive(Clone)]
pub struct Tls(Arc<Files>);

struct Files {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    config: Mutex<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files, if the options name any.
    ///
    /// # Errors
    /// Files that cannot be used.
    pub fn open(arguments: &TlsArguments) -> Result<Option<Self>, Failure> {
        let (Some(cert), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) else {
            return Ok(None);
        };
        let client_ca = arguments.tls_client_ca.clone();
        let config = load(cert, key, client_ca.as_deref())?;
        Ok(Some(Self(Arc::new(Files {
            cert: cert.clone(),
            key: key.clone(),
            client_ca,
            config: Mutex::new(config),
        }))))
    }

    /// A new connection's side of the handshake.
    ///
    /// # Errors
    /// None that the settings of this file bring about.
    pub fn accept(&self) -> Result<ServerConnection, rustls::Error> {
        let config = self.0.config.lock().unwrap_or_else(PoisonError::into_inner);
        ServerConnection::new(Arc::clone(&config))
    }

    /// Reads the files again. If they cannot be used, everything stays as it is.
    ///
    /// # Errors
    /// Files that cannot be used.
    pub fn reload(&self) -> Result<(), Failure> {
        let files = &self.0;
        let config = load(&files.cert, &files.key, files.client_ca.as_deref())?;
        *files.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// From now on SIGHUP makes this process read the files again.
    ///
    /// # Errors
    /// The system does not let it watch for the signal.
    pub fn reload_at_signal(&self) -> Result<(), Failure> {
        let tls = self.clone();
        interrupt::at_hangups("tls-reload", move || match tls.reload() {
            Ok(()) => tracing::warn!(target: TLS, "read the certificate of TLS again"),
            Err(failure) => {
                let why = failure.message();
                tracing::error!(target: TLS, why, "the certificate of TLS stays as it was");
            }
        })
    }
}

fn load(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Arc<ServerConfig>, Failure> {
    let chain = certificates("certificate", cert)?;
    assert!(!chain.is_empty(), "a file without a certificate is refused");
    check_validity(cert, &chain[0])?;
    let private = private_key(key)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::usage(format!("TLS cannot be set up: {error}"), ""))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let unusable = |error: String| {
                Failure::usage(
                    format!("the client CA {} cannot be used: {error}", path.display()),
                    "name a PEM file with the certificate of the CA that signs the clients' certificates",
                )
            };
            let mut roots = RootCertStore::empty();
            for root in certificates("client CA", path)? {
                roots
                    .add(root)
                    .map_err(|error| unusable(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| unusable(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(chain, private)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Failure::usage(
                format!(
                    "the TLS key {} does not belong to the certificate {}",
                    key.display(),
                    cert.display()
                ),
                "name the key that the certificate was made for",
            ),
            error => Failure::usage(
                format!(
                    "the TLS certificate {} cannot be used: {error}",
                    cert.display()
                ),
                "",
            ),
        })?;
    Ok(Arc::new(config))
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let unusable = |why: String| {
        Failure::usage(
            format!("cannot read the TLS {what} {}: {why}", path.display()),
            "it is a PEM file, which begins with -----BEGIN CERTIFICATE-----",
        )
    };
    let bytes = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(obstacle(&bytes, path)
            .unwrap_or_else(|| unusable("there is no certificate in it".to_owned()))),
        Err(error) => Err(obstacle(&bytes, path).unwrap_or_else(|| unusable(error.to_string()))),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Failure> {
    let cannot = |why: String| {
        Failure::usage(
            format!("cannot read the TLS key {}: {why}", path.display()),
            "it is a PEM file, which begins with -----BEGIN PRIVATE KEY-----",
        )
    };
    let file = private::open(path, "the TLS key").map_err(|why| match why {
        Unread::Open(failure) => failure,
        Unread::Io(error) => cannot(error.to_string()),
    })?;
    let mut bytes = Vec::new();
    file.take(PEM_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| cannot(error.to_string()))?;
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|error| obstacle(&bytes, path).unwrap_or_else(|| cannot(error.to_string())))
}

/// What keeps a file from being read as PEM, if that is one of the usual mistakes.
fn obstacle(bytes: &[u8], path: &Path) -> Option<Failure> {
    let text = String::from_utf8_lossy(bytes);
    let file = path.display();
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Some(Failure::usage(
            format!("the TLS key {file} is encrypted, and a server cannot ask for a passphrase"),
            format!(
                "openssl pkey -in {file} -out PLAIN writes it without one; keep that file as private as the passphrase"
            ),
        ));
    }
    match (
        text.matches("-----BEGIN ").count(),
        text.matches("-----END ").count(),
    ) {
        (0, _) => Some(Failure::usage(
            format!("{file} is not PEM: it has no line that begins with -----BEGIN"),
            format!(
                "openssl x509 -inform der -in {file} (for a key: openssl pkey) writes the PEM form of a DER file"
            ),
        )),
        (begun, ended) if begun > ended => Some(Failure::usage(
            format!("{file} is cut off: it has -----BEGIN without -----END"),
            "copy the complete file again",
        )),
        _ => None,
    }
}

/// No client would take an expired certificate, and the mistake would be found there.
fn check_validity(path: &Path, certificate: &CertificateDer<'_>) -> Result<(), Failure> {
    let unusable = |why: String| {
        Failure::usage(
            format!("the TLS certificate {} {why}", path.display()),
            "renew it, and name the new one; a running replica reads it again at SIGHUP",
        )
    };
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| unusable(format!("cannot be used: {error:?}")))?;
    // The validity is looked at first. Who has signed it is for clients to say.
    let usage = webpki::KeyUsage::server_auth();
    let verdict = parsed.verify_for_usage(&[], &[], &[], UnixTime::now(), usage, None, None);
    match verdict.err() {
        Some(webpki::Error::CertExpired { time, not_after }) => {
            let days = (time.as_secs().saturating_sub(not_after.as_secs())) / 86_400;
            Err(unusable(format!("has expired {days} days ago")))
        }
        Some(webpki::Error::CertNotValidYet { .. }) => {
            Err(unusable("is not valid yet, by this machine's clock".into()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
