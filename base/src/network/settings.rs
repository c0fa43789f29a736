//! What all endpoints of a process share: the congestion control, and the keys.

mod server_keys;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use trine_keys::{Credential, KeyRing, Presented};
use trine_protocol::endpoint_config;
use trine_transport::keys::{self, KeyId, Keys, NoKeys, OwnKey, Psk, Stage};
use trine_transport::{Config, CongestionControl};

pub use self::server_keys::ServerKeys;
use super::key_log;
use crate::failure::Failure;
use crate::local_key;

/// The key that a process uses.
#[derive(Clone, Debug, Default, Args)]
pub struct KeyArguments {
    /// Key that seals all packets: for a replica the group's key file (`trine key new`), for other commands that file
    /// or a user's (`trine user add`). Without this option, `trine up` has its own key, and commands use it if the same
    /// user's `trine up` runs at one of the peers. With --key '' no key is used.
    #[arg(
        id = "key_file",
        long = "key",
        env = "TRINE_KEY",
        value_name = "FILE",
        global = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    pub file: Option<PathBuf>,
    /// Write the secrets of this process's sessions to this file, so that Wireshark can decrypt captures. The file lets
    /// its reader decrypt all packets.
    #[arg(
        id = "key_log",
        long = "key-log",
        env = "TRINE_KEY_LOG",
        value_name = "FILE",
        global = true
    )]
    pub log: Option<PathBuf>,
}

impl KeyArguments {
    /// What the user wants.
    #[must_use]
    pub fn choice(&self) -> KeyChoice {
        match &self.file {
            None => KeyChoice::OfLocalGroup,
            Some(path) if path.as_os_str().is_empty() => KeyChoice::Without,
            Some(path) => KeyChoice::File(path.clone()),
        }
    }
}

/// Whose key a process uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyChoice {
    /// A client's: that of the group which `trine up` runs at the peers, if this user runs one. A replica has none.
    #[default]
    OfLocalGroup,
    /// The key in this file.
    File(PathBuf),
    /// None.
    Without,
}

/// Which callers a replica accepts.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyStage {
    /// All callers; no key is used.
    None,
    /// Callers with and without a key: for changing a running group one replica at a time.
    Accept,
    /// Only callers with a key.
    Require,
}

impl KeyStage {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Accept => "accept",
            Self::Require => "require",
        }
    }
}

/// What all endpoints of a process share.
#[derive(Clone, Debug, Default)]
pub struct EndpointSettings {
    /// The congestion control that the user asked for; none if absent. Timely's thresholds are absolute, so a long path
    /// without a queue looks congested to it.
    pub congestion: Option<CongestionControl>,
    /// Bytes that each path to another machine carries in one packet, if the user says so.
    pub mtu: Option<u16>,
    /// This process's key.
    pub key: KeyChoice,
    /// The file to which the secrets of sessions are written.
    pub key_log: Option<PathBuf>,
    /// Which callers a replica takes: those with a key, if it has one itself and nothing else was asked for.
    pub stage: Option<KeyStage>,
}

impl EndpointSettings {
    /// Whether a replica takes only callers with a key.
    #[must_use]
    pub fn requires_keys(&self) -> bool {
        self.file().is_some() && matches!(self.stage, None | Some(KeyStage::Require))
    }

    /// The named key file.
    fn file(&self) -> Option<&PathBuf> {
        match &self.key {
            KeyChoice::File(path) => Some(path),
            KeyChoice::OfLocalGroup | KeyChoice::Without => None,
        }
    }

    /// The key file of a client of the replicas at `peers`.
    #[must_use]
    pub fn file_towards(&self, peers: &[SocketAddr]) -> Option<PathBuf> {
        match &self.key {
            KeyChoice::OfLocalGroup => local_key::find(peers),
            KeyChoice::File(_) | KeyChoice::Without => self.file().cloned(),
        }
    }

    /// The same settings, with this choice of a key.
    #[must_use]
    pub fn with_key(&self, key: KeyChoice) -> Self {
        Self {
            key,
            ..self.clone()
        }
    }

    /// The key file of a replica, and which callers it takes; nothing if it uses no key.
    #[must_use]
    pub fn server_key(&self) -> Option<(&Path, KeyStage)> {
        let stage = self.stage.unwrap_or(KeyStage::Require);
        let path = self.file().map(PathBuf::as_path);
        path.filter(|_| stage != KeyStage::None)
            .map(|path| (path, stage))
    }

    /// The settings of a replica's endpoint.
    ///
    /// # Errors
    /// A key file that cannot be used, or a stage without one.
    pub fn of_server(&self) -> Result<Config, Failure> {
        let keys = match (self.file(), self.stage) {
            (_, Some(KeyStage::None)) | (None, None) => {
                self.check_unused_key_log()?;
                None
            }
            (None, Some(stage)) => {
                return Err(Failure::usage(
                    format!(
                        "--key-stage {} needs the group's key, and none is given",
                        stage.name()
                    ),
                    "give it with --key FILE; `trine key new` creates one",
                ));
            }
            (Some(path), stage) => {
                let stage = stage.unwrap_or(KeyStage::Require);
                Some(ServerKeys::read(path, stage)?.keys(self)?)
            }
        };
        Ok(Config {
            keys,
            ..self.endpoint()
        })
    }

    /// The settings of the endpoint of a client of the replicas at `peers`.
    ///
    /// # Errors
    /// A key file that cannot be used.
    pub fn of_client(&self, peers: &[SocketAddr]) -> Result<Config, Failure> {
        let keys = match self.file_towards(peers) {
            None => {
                self.check_unused_key_log()?;
                None
            }
            // A replica's own calls, for its Redis clients.
            Some(_) if self.stage == Some(KeyStage::None) => None,
            Some(path) => {
                let stage = match self.stage {
                    Some(KeyStage::Accept) => Stage::Accept,
                    _ => Stage::Require,
                };
                let presented = Presented::read(&path)
                    .map_err(|error| Failure::usage(error.to_string(), ""))?;
                let own = own_key(&presented)?;
                Some(self.keys_with(stage, Arc::new(NoKeys), own)?)
            }
        };
        Ok(Config {
            keys,
            ..self.endpoint()
        })
    }

    /// The keys of a client that is a part of a replica and acts with the replica's rights, for itself and for users.
    /// It takes replicas in the same stage as the replica does.
    ///
    /// # Errors
    /// A key file that cannot be used, or a stage without one.
    pub fn of_replicas_client(&self) -> Result<Option<Keys>, Failure> {
        Ok(self.of_server()?.keys.map(replicas_client))
    }

    fn endpoint(&self) -> Config {
        let mut config = endpoint_config();
        config.congestion.control = self.congestion.unwrap_or(CongestionControl::Off);
        config
    }

    /// The options that say the same to a replica that this process starts.
    #[must_use]
    pub fn serve_args(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        if let Some(control) = self.congestion {
            arguments.extend(["--congestion".into(), control.name().into()]);
        }
        if let Some(bytes) = self.mtu {
            arguments.extend(["--mtu".into(), bytes.to_string().into()]);
        }
        if let Some(path) = self.file() {
            arguments.extend(["--key".into(), path.clone().into()]);
        }
        if let Some(path) = &self.key_log {
            arguments.extend(["--key-log".into(), path.clone().into()]);
        }
        if let Some(stage) = self.stage {
            arguments.extend(["--key-stage".into(), stage.name().into()]);
        }
        arguments
    }

    /// Without a key there are no secrets.
    fn check_unused_key_log(&self) -> Result<(), Failure> {
        match self.key_log {
            None => Ok(()),
            Some(_) => Err(Failure::usage(
                "--key-log has nothing to write: this process uses no key",
                "unsealed packets are readable anyway; give a key with --key FILE",
            )),
        }
    }

    fn keys_with(
        &self,
        stage: Stage,
        ring: Arc<dyn keys::KeyRing>,
        own: OwnKey,
    ) -> Result<Keys, Failure> {
        // Asked now, where a failure can be told: an endpoint that is made later asks again.
        random_bytes()?;
        Ok(Keys {
            stage,
            ring,
            own: Some(own),
            entropy: Arc::new(|| {
                random_bytes().expect("the operating system gave random numbers before")
            }),
            key_log: self.key_log.as_deref().map(key_log::open).transpose()?,
        })
    }
}

/// The same keys for a client that is a part of the replica: nobody opens a session to it.
#[must_use]
pub fn replicas_client(keys: Keys) -> Keys {
    let ring: Arc<dyn keys::KeyRing> = Arc::new(NoKeys);
    Keys { ring, ..keys }
}

fn own_key(presented: &Presented) -> Result<OwnKey, Failure> {
    let id = KeyId::new(&presented.key_id().encode());
    let id =
        id.ok_or_else(|| Failure::usage("the key's name is longer than a packet takes", ""))?;
    let psk = Psk::new(*presented.psk().bytes());
    Ok(OwnKey { id, psk })
}

fn random_bytes() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::usage(
            format!("the operating system gives no random numbers: {error}"),
            "",
        )
    })?;
    Ok(bytes)
}

/// The keys of a group's files, as the transport asks for them.
struct Ring(KeyRing);

impl keys::KeyRing for Ring {
    fn find(&self, key: &KeyId) -> Option<Psk> {
        let psk = self.0.psk(key)?;
        Some(Psk::new(*psk.bytes()))
    }

    fn goes_first(&self, key: &KeyId) -> bool {
        Credential::parse(key) == Some(Credential::Member)
    }
}
