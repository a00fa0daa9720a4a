//! Certificates of a node, and the state of its signing keys.

use std::sync::{Arc, Mutex};

use crate::config::Config;
use crate::tls::{self, NodeTls};

/// Certificates and signing keys of a node.
pub(crate) struct KeyFiles {
    /// Certificates; `None` if the node serves HTTP.
    pub(crate) tls: Option<Arc<NodeTls>>,
    /// Error of the last attempt to read the signing keys.
    pub(crate) signing_failure: Mutex<String>,
}

impl KeyFiles {
    /// Reads the certificates. The connection to NATS has the signing keys.
    pub(crate) fn load(config: &Config) -> Result<Self, tls::Error> {
        Ok(Self { tls: NodeTls::load(config)?, signing_failure: Mutex::default() })
    }
}
