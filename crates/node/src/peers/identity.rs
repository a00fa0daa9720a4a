//! Identity of this node for its peers: a name, and an Ed25519 key that signs its requests.
//!
//! A standalone node creates its key at the first start, in its data directory. The pods of a
//! cluster are one node: they read one key from a configured file, or have no identity.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use orlog_model::{AddressError, NodeName};
use orlog_signature::{KeyId, PublicKey, SigningKey};

use crate::config::{ClusterMode, Config, NodeAddress};
use crate::private_file;

/// Name of the created file in the data directory.
const FILE: &str = "node-key";
/// Extension of the file with the key that replaces the current one.
const NEXT: &str = "next";
/// Access of users that are neither the owner of a file nor in its group. Kubernetes gives the
/// group of a pod access to its volumes (`fsGroup`).
const OTHERS: u32 = 0o007;

/// Identity of this node, if it has one.
pub(crate) type Identity = Result<NodeIdentity, NoIdentity>;

/// Name, address and keys of this node.
pub struct NodeIdentity {
    /// Name of the node.
    pub name: NodeName,
    /// Address at which peers reach it, if it is published.
    pub(crate) address: Option<NodeAddress>,
    /// Key that signs requests.
    pub key: SigningKey,
    /// Key that replaces it, during a rotation.
    pub(crate) next: Option<SigningKey>,
}

/// Reason why a node has no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    /// Several processes could be this node, and no key is configured.
    #[error(
        "this node has no identity: its pods, or its replacement on another machine, need the \
         same key; set identity.name and identity.key_file"
    )]
    NoKeyFile,
    /// The role has no data directory.
    #[error(
        "this node has no identity: it executes effects only; ask a node with the role \"saga\" or \
         \"combined\""
    )]
    Role,
    /// The name of the process cannot be the name of a node.
    #[error("this node has no identity: {0}; set identity.name")]
    Name(AddressError),
}

impl NodeIdentity {
    /// Reads the key of the node. The file in the data directory is created if it is missing; a
    /// configured file is not, because a missing mount would otherwise go unnoticed.
    ///
    /// # Errors
    /// OR0120 if a file cannot be read or created, if other users can access it, or if it contains
    /// no key.
    pub(crate) fn open(config: &Config) -> anyhow::Result<Identity> {
        let file = match key_file(config) {
            Ok(file) => file,
            Err(reason) => return Ok(Err(reason)),
        };
        let name = match config.identity_name() {
            Ok(name) => name,
            Err(error) => {
                let reason = NoIdentity::Name(error);
                tracing::warn!("{reason}");
                return Ok(Err(reason));
            }
        };

        let key = || {
            // A configured file is never created: it may be a mount that is missing.
            if config.identity.key_file.is_none() && is_missing(&file)? {
                create(&file)?;
            }

            // The successor of a rotation; peers accept it before it replaces the current key.
            let next = file.with_added_extension(NEXT);
            let next = if is_missing(&next)? {
                None
            } else {
                Some(read(&next)?)
            };

            anyhow::Ok((read(&file)?, next))
        };

        let (key, next) =
            key().context("OR0120: the key of this node cannot be used (identity.key_file)")?;
        tracing::debug!(%name, key = %key.key_id(), "identity of the node");

        Ok(Ok(Self {
            name,
            address: config.identity.address.clone(),
            key,
            next,
        }))
    }

    /// Returns the public keys: the current one first.
    pub(super) fn public_keys(&self) -> Vec<PublicKey> {
        self.keys().map(SigningKey::public_key).collect()
    }

    /// Returns the ids of the keys: the current one first.
    pub(crate) fn key_ids(&self) -> Vec<String> {
        self.keys().map(|key| key.key_id().to_string()).collect()
    }

    /// Returns whether a key belongs to this node.
    pub fn owns(&self, key: KeyId) -> bool {
        self.keys().any(|own| own.key_id() == key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &SigningKey> {
        std::iter::once(&self.key).chain(&self.next)
    }
}

/// Returns the file with the key of the node.
fn key_file(config: &Config) -> Result<PathBuf, NoIdentity> {
    if let Some(file) = &config.identity.key_file {
        return Ok(file.clone());
    }
    if !config.role.runs_sagas() {
        return Err(NoIdentity::Role);
    }

    // A replicated node can start on another machine, without its data directory.
    if config.cluster.mode != ClusterMode::Standalone || config.replicated() {
        return Err(NoIdentity::NoKeyFile);
    }

    Ok(config.data_dir.join(FILE))
}

fn is_missing(file: &Path) -> anyhow::Result<bool> {
    match file.metadata() {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

fn create(file: &Path) -> anyhow::Result<()> {
    let pem = SigningKey::generate_pem()?;
    private_file::replace(file, pem.as_bytes())
        .with_context(|| format!("cannot create {}", file.display()))?;
    tracing::debug!(file = %file.display(), "key of the node created");
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<SigningKey> {
    let pem = private_file::read(file, OTHERS)?;
    SigningKey::from_pem(&pem).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::Role;

    fn config(dir: &Path) -> Config {
        Config {
            data_dir: dir.join("data"),
            node_name: "a".to_owned(),
            ..Config::default()
        }
    }

    fn open(config: &Config) -> NodeIdentity {
        NodeIdentity::open(config).unwrap().unwrap()
    }

    fn failure(config: &Config) -> String {
        format!("{:#}", NodeIdentity::open(config).err().unwrap())
    }

    #[test]
    fn key_is_created_once_with_private_access() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let first = open(&config);
        assert_eq!((first.name.as_str(), first.next.is_none()), ("a", true));
        assert_eq!(open(&config).key.key_id(), first.key.key_id());
        let file = config.data_dir.join(FILE);
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::write(
            config.data_dir.join("node-key.next"),
            SigningKey::generate_pem().unwrap(),
        )
        .unwrap();
        assert!(failure(&config).contains("chmod"), "{}", failure(&config));
        fs::set_permissions(
            config.data_dir.join("node-key.next"),
            fs::Permissions::from_mode(0o600),
        )
        .unwrap();
        let rotating = open(&config);
        assert_eq!(rotating.public_keys().len(), 2);
        assert!(rotating.owns(first.key.key_id()) && rotating.key.key_id() == first.key.key_id());
    }

    #[test]
    fn unusable_key_prevents_the_start_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        let file = dir.path().join("key");
        config.identity.key_file = Some(file.clone());
        let error = failure(&config);
        assert!(
            error.starts_with("OR0120: ") && error.contains("cannot read"),
            "{error}"
        );
        fs::write(&file, "no key").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        assert!(
            failure(&config).contains("run `chmod 600 "),
            "{}",
            failure(&config)
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(
            failure(&config).contains("not an Ed25519 private key"),
            "{}",
            failure(&config)
        );
        fs::write(&file, SigningKey::generate_pem().unwrap()).unwrap();
        open(&config);
    }

    #[test]
    fn pods_without_a_configured_key_have_no_identity() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.cluster.mode = ClusterMode::Leases;
        assert_eq!(
            NodeIdentity::open(&config).unwrap().err(),
            Some(NoIdentity::NoKeyFile)
        );
        config.cluster.mode = ClusterMode::Standalone;
        config.role = Role::Effect;
        assert_eq!(
            NodeIdentity::open(&config).unwrap().err(),
            Some(NoIdentity::Role)
        );
        config.role = Role::Combined;
        config.node_name = "a b".to_owned();
        assert!(matches!(
            NodeIdentity::open(&config).unwrap().err(),
            Some(NoIdentity::Name(_))
        ));
        assert!(!config.data_dir.exists(), "nothing was created");
    }
}
