//! Which pods there are, and which of them holds which shard: the contract.
//!
//! A pod is there for as long as it says so again and again. A shard's record names its holder; it is worth as much as the
//! holder is alive, so that one message of a pod renews all of its shards and one silence frees them. Who reads an old view
//! cannot do harm: a record is only replaced where it is the one that was seen, and its number, which grows with every
//! change, is the epoch under which the holder commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use uuid::Uuid;

use crate::Error;

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name; one pod a name.
    pub name: String,
    /// Another one whenever its process starts.
    pub incarnation: Uuid,
    /// Where its HTTP API is reached by other pods.
    pub url: String,
    /// It hands over what it has and takes nothing.
    pub draining: bool,
}

/// What is known about a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Name and incarnation of the holder; `None`: it was let go.
    pub holder: Option<(String, Uuid)>,
    /// The number of the record.
    pub epoch: u64,
}

/// Everything that is known at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// By name.
    pub pods: BTreeMap<String, Pod>,
    /// By number; a shard that nobody ever held is not there.
    pub shards: BTreeMap<u16, Holding>,
    /// Whether it is what the servers say now; not while they cannot be reached.
    pub current: bool,
}

impl View {
    /// The pod that holds a shard, if it is alive.
    #[must_use]
    pub fn holder(&self, shard: u16) -> Option<&Pod> {
        let (name, incarnation) = self.shards.get(&shard)?.holder.as_ref()?;
        self.pods.get(name).filter(|pod| pod.incarnation == *incarnation)
    }
}

/// The keeper of the records.
#[async_trait]
pub trait Membership: Send + Sync + 'static {
    /// What is known; changes as it changes.
    fn view(&self) -> watch::Receiver<Arc<View>>;

    /// Says that a pod is there, for the time to live from now on. `false`: another process goes by this name.
    ///
    /// # Errors
    /// When it is not known whether it was heard.
    async fn announce(&self, pod: &Pod) -> Result<bool, Error>;

    /// Says that a pod is gone. Others need not wait for its time to end.
    ///
    /// # Errors
    /// When it is not known whether it was heard.
    async fn withdraw(&self, pod: &Pod) -> Result<(), Error>;

    /// Makes a pod the holder of a shard, if its record still has the number `seen` (0: there was none). The answer is the new
    /// number; `None`: somebody was faster.
    ///
    /// # Errors
    /// When it is not known whether it was heard.
    async fn take(&self, shard: u16, pod: &Pod, seen: u64) -> Result<Option<u64>, Error>;

    /// Lets a shard go that is held under this number. Harmless when somebody else holds it now.
    ///
    /// # Errors
    /// When it is not known whether it was heard.
    async fn let_go(&self, shard: u16, epoch: u64) -> Result<(), Error>;
}
