//! The other end of TLS: a command of this machine that asks a service of a replica, and knows it by a CA.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use trine_base::failure::Failure;

use super::{certificates, private_key};

/// A connection in TLS, from the side that began it.
pub type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// A caller that takes services whose certificate one CA has signed.
#[derive(Clone)]
pub struct TlsCaller(Arc<ClientConfig>);

impl TlsCaller {
    /// Reads the certificate of the CA, and the caller's own with its key, if it has one.
    ///
    /// # Errors
    /// Files that cannot be used.
    pub fn open(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Self, Failure> {
        let unusable = |path: &Path, error: rustls::Error| {
            Failure::usage(
                format!(
                    "the TLS certificate {} cannot be used: {error}",
                    path.display()
                ),
                "name a PEM file; a certificate belongs to the key that is named beside it",
            )
        };
        let mut roots = RootCertStore::empty();
        for root in certificates("CA", ca)? {
            roots.add(root).map_err(|error| unusable(ca, error))?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::usage(format!("TLS cannot be set up: {error}"), ""))?
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = certificates("certificate", cert)?;
                builder
                    .with_client_auth_cert(chain, private_key(key)?)
                    .map_err(|error| unusable(cert, error))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// Encrypts what is said over `socket`. The keys are agreed on with the first bytes. `host` is the name or the address
    /// that the service's certificate has to be for.
    ///
    /// # Errors
    /// No certificate can be for such a host.
    pub fn encrypt(&self, host: &str, socket: TcpStream) -> io::Result<Encrypted> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection =
            ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, socket))
    }
}
