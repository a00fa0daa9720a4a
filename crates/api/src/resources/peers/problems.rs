//! Problems of requests about peers.

use orlog_model::NodeName;

use crate::server::parts::peer_network::PeerNetwork;
use crate::server::problem::{Code, Problem};
use orlog_node::access::KeyError;
use orlog_node::coded_error::CodedError;
use orlog_node::config::NodeAddress;
use orlog_node::peers::client::PeerError;

pub(super) fn key_problem(error: &KeyError) -> Problem {
    let code = match error {
        KeyError::Missing { .. } => Code::PeerNotFound,
        KeyError::Exists(_) | KeyError::TooMany | KeyError::Invitation => Code::PeerConflict,
    };
    Problem::new(code, error.to_string())
}

/// Returns the problem of a peer that the registry does not contain.
pub(super) fn missing(peers: &PeerNetwork, name: &NodeName) -> Problem {
    // Such a peer exists, but requests cannot change it: only the configuration can.
    if peers.known().configured(name).is_some() {
        in_configuration(name)
    } else {
        not_found(name)
    }
}

pub(super) fn in_configuration(name: &NodeName) -> Problem {
    let detail = format!(
        "the peer {name} is in the configuration ([peers.\"{name}\"]); change it there, and reload"
    );
    Problem::new(Code::PeerConflict, detail)
}

pub(super) fn not_found(name: &NodeName) -> Problem {
    Problem::new(
        Code::PeerNotFound,
        format!("no peer {name}; add it with `orlog peer add`"),
    )
}

pub(super) fn unreadable(name: &NodeName) -> Problem {
    let detail = format!(
        "the record of the peer {name} cannot be read by this release; the log has the reason"
    );
    Problem::new(Code::Unavailable, detail)
}

impl From<PeerError> for Problem {
    fn from(error: PeerError) -> Self {
        CodedError::from(error).into()
    }
}

/// Returns the problem of a document that no known key of the peer signed.
pub(super) fn unsigned_document(name: &NodeName, address: &NodeAddress) -> Problem {
    let detail = format!(
        "{address}: no valid key of the peer {name} signed the document; compare its fingerprint \
         with the administrator of the peer, then add the key with `orlog peer key add`"
    );
    Problem::new(Code::InvalidNodeDocument, detail)
}
