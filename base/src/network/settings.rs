//! What all endpoints of a process share: the congestion control, and the keys.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use trine_keys::{ClusterKey, Credential, KeyRing, Presented};
use trine_protocol::endpoint_config;
use trine_transport::keys::{self, KeyId, Keys, NoKeys, OwnKey, Psk, Stage};
use trine_transport::{Config, CongestionControl};

use crate::failure::Failure;

/// Whose key a process uses.
#[derive(Clone, Debug, Default, Args)]
pub struct KeyArguments {
    /// The key that seals all packets: for a replica the group's key file (`trine key new`), for other commands that
    /// file or a user's (`trine user add`). Packets are not sealed without it.
    #[arg(
        id = "key_file",
        long = "key",
        env = "TRINE_KEY",
        value_name = "PATH",
        global = true
    )]
    pub file: Option<PathBuf>,
}

/// Which callers a replica takes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyStage {
    /// All, and no key is used.
    None,
    /// Those with a key and those without: for the change of a running group, a replica at a time.
    Accept,
    /// Only those with a key.
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
    /// The file with this process's key.
    pub key: Option<PathBuf>,
    /// Which callers a replica takes: those with a key, if it has one itself and nothing else was asked for.
    pub stage: Option<KeyStage>,
}

impl EndpointSettings {
    /// Whether a replica takes only callers with a key.
    #[must_use]
    pub fn requires_keys(&self) -> bool {
        self.key.is_some() && matches!(self.stage, None | Some(KeyStage::Require))
    }

    /// The settings of a replica's endpoint.
    ///
    /// # Errors
    /// A key file that cannot be used, or a stage without one.
    pub fn of_server(&self) -> Result<Config, Failure> {
        let keys = match (&self.key, self.stage) {
            (_, Some(KeyStage::None)) | (None, None) => None,
            (None, Some(stage)) => {
                return Err(Failure::usage(
                    format!(
                        "--keys {} needs the group's key, and none is given",
                        stage.name()
                    ),
                    "name its file with --key PATH; `trine key new` makes one",
                ));
            }
            (Some(path), stage) => {
                let cluster = ClusterKey::read(path).map_err(|error| {
                    Failure::usage(
                        error.to_string(),
                        "a replica needs the group's key file, as `trine key new` makes it",
                    )
                })?;
                let own = own_key(&Presented::member(&cluster))?;
                let stage = match stage {
                    Some(KeyStage::Accept) => Stage::Accept,
                    _ => Stage::Require,
                };
                let ring = Arc::new(Ring(KeyRing::new([cluster])));
                Some(keys_with(stage, ring, own)?)
            }
        };
        Ok(Config {
            keys,
            ..self.endpoint()
        })
    }

    /// The settings of a client's endpoint.
    ///
    /// # Errors
    /// A key file that cannot be used.
    pub fn of_client(&self) -> Result<Config, Failure> {
        let keys = match &self.key {
            None => None,
            Some(path) => {
                let presented =
                    Presented::read(path).map_err(|error| Failure::usage(error.to_string(), ""))?;
                let own = own_key(&presented)?;
                Some(keys_with(Stage::Require, Arc::new(NoKeys), own)?)
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
        let keys = self.of_server()?.keys;
        let ring: Arc<dyn keys::KeyRing> = Arc::new(NoKeys);
        Ok(keys.map(|keys| Keys { ring, ..keys }))
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
        if let Some(path) = &self.key {
            arguments.extend(["--key".into(), path.clone().into()]);
        }
        if let Some(stage) = self.stage {
            arguments.extend(["--keys".into(), stage.name().into()]);
        }
        arguments
    }
}

fn own_key(presented: &Presented) -> Result<OwnKey, Failure> {
    let id = KeyId::new(&presented.key_id().encode());
    let id =
        id.ok_or_else(|| Failure::usage("the key's name is longer than a packet takes", ""))?;
    let psk = Psk::new(*presented.psk().bytes());
    Ok(OwnKey { id, psk })
}

fn keys_with(stage: Stage, ring: Arc<dyn keys::KeyRing>, own: OwnKey) -> Result<Keys, Failure> {
    // Asked now, where a failure can be told: an endpoint that is made later asks again.
    random_bytes()?;
    Ok(Keys {
        stage,
        ring,
        own: Some(own),
        entropy: Arc::new(|| {
            random_bytes().expect("the operating system gave random numbers before")
        }),
    })
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
