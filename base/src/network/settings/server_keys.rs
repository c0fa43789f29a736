//! The keys of a replica: read at the start, and again while it serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trine_keys::{ClusterKey, KeyRing, Presented};
use trine_protocol::node_status::MemberRoots;
use trine_transport::keys::{Keys, Stage};

use super::{EndpointSettings, KeyStage, Ring, own_key};
use crate::failure::Failure;

/// The keys of a replica, and where they came from.
#[derive(Clone, Debug)]
pub struct ServerKeys {
    path: PathBuf,
    cluster: ClusterKey,
    stage: KeyStage,
}

impl ServerKeys {
    /// Reads the group's key file.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn read(path: &Path, stage: KeyStage) -> Result<Self, Failure> {
        let cluster = ClusterKey::read(path).map_err(|error| {
            Failure::usage(
                error.to_string(),
                "a replica needs the group's key file, created by `trine key new`",
            )
        })?;
        Ok(Self {
            path: path.to_owned(),
            cluster,
            stage,
        })
    }

    /// What the file says now, for a replica that has these keys and serves.
    ///
    /// # Errors
    /// A file that cannot be used, or one that a serving replica cannot go on with. These keys remain in force.
    pub fn read_again(&self, stage: KeyStage) -> Result<Self, Failure> {
        if stage == KeyStage::None {
            return Err(Failure::usage(
                "a replica that serves with keys cannot stop using them: its peers would reject \
                 its packets",
                "let it accept callers without a key (keys = \"accept\"), or restart it without \
                 --key",
            ));
        }
        let found = Self::read(&self.path, stage)?;
        found.cluster.follows(&self.cluster).map_err(|error| {
            let path = self.path.display();
            Failure::usage(
                format!("the key file {path} cannot be used: {error}"),
                format!("`trine key show {path}` shows its contents"),
            )
        })?;
        Ok(found)
    }

    /// Which callers it takes.
    #[must_use]
    pub fn stage(&self) -> KeyStage {
        self.stage
    }

    /// The same, as an endpoint takes it.
    ///
    /// # Errors
    /// The operating system gives no random numbers, or a key log cannot be written.
    pub fn keys(&self, settings: &EndpointSettings) -> Result<Keys, Failure> {
        let own = own_key(&Presented::member(&self.cluster))?;
        let stage = match self.stage {
            KeyStage::None | KeyStage::Accept => Stage::Accept,
            KeyStage::Require => Stage::Require,
        };
        let ring = Arc::new(Ring(KeyRing::new([self.cluster.clone()])));
        settings.keys_with(stage, ring, own)
    }

    /// The member roots, for the status.
    #[must_use]
    pub fn member_roots(&self) -> MemberRoots {
        MemberRoots {
            group: Some(self.cluster.group().to_string()),
            step: self.cluster.rotation().to_string(),
            used: self.cluster.member_root().to_string(),
            accepted: self.cluster.accepted_root().map(|root| root.to_string()),
            not_taken: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use trine_keys::{Existing, GroupId};

    /// A file that cannot be used, or must not be, leaves a replica with the keys that it has, and says why.
    #[test]
    fn a_replica_takes_only_a_file_that_it_can_go_on_with() {
        let directory = std::env::temp_dir().join(format!("trine-again-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("group.key");
        let key = ClusterKey::new(GroupId([1; 8]), [1; 32], [2; 32]);
        let put = |key: &ClusterKey| key.write(&path, Existing::Replace).expect("written");
        put(&key);
        let present = ServerKeys::read(&path, KeyStage::Require).expect("good");
        let refused = |parts: &[&str]| {
            let failure = present.read_again(KeyStage::Require).expect_err("refused");
            let said = failure.in_one_line();
            for part in parts {
                assert!(said.contains(part), "{said}: {part}");
            }
        };
        put(&key.clone().accepting([3; 32]).expect("settled"));
        let begun = present.read_again(KeyStage::Require).expect("one step");
        assert_eq!(begun.member_roots().step, "begun");
        assert!(present.read_again(KeyStage::None).is_err());
        put(&ClusterKey::new(GroupId([9; 8]), [1; 32], [2; 32]));
        refused(&["group 0909090909090909", "trine key show"]);
        put(&ClusterKey::new(GroupId([1; 8]), [1; 32], [4; 32]));
        refused(&["user root", "start the replicas again"]);
        put(&ClusterKey::new(GroupId([1; 8]), [5; 32], [2; 32]));
        refused(&["more than one step", "the step between"]);
        let text = key.to_text();
        std::fs::write(&path, &text[..text.len() / 2]).expect("written");
        refused(&["cut off"]);
        std::fs::write(&path, text.as_bytes()).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("chmod");
        refused(&["can be read by others", "chmod 600"]);
        std::fs::remove_file(&path).expect("removed");
        refused(&["cannot read the key file"]);
        let _ = std::fs::remove_dir_all(&directory);
    }
}
