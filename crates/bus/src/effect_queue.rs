//! Effects between processes: how whoever asks for them and whoever performs them meet over the bus.
//!
//! Promises of a queue:
//! - A command that was offered is handed to one of those who take the jobs of its effect, and to another one if nothing is
//!   heard of that one for [`Wanted::ack_wait`], until somebody is done with it.
//! - There is one word on a command for ever, the first: a later one is refused and is told what the first was.
//! - Words are heard live by everybody who listens from before they were said, and can be looked up at any time.
//! - An acknowledgement is no proof of durability: a queue may lose commands and words. Whoever has the command in an outbox
//!   offers it again.

mod command;
mod dead_letter;
mod headers;
mod result;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{EffectName, TenantId, WorkItem};

use crate::subject::{Kind, Subject};
use crate::{Error, Message};

pub use command::{Ordered, decode as decode_command, encode as encode_command};
pub use dead_letter::encode as encode_dead_letter;
pub use result::{Said, decode as decode_result, encode as encode_result};

/// A queue, as both sides see it.
#[async_trait]
pub trait EffectQueue: Send + Sync + 'static {
    /// Lays down a command under its subject, the first time only where nothing lies there. Again under the same id is
    /// harmless.
    ///
    /// # Errors
    /// When it was not taken; it may lie there nevertheless.
    async fn offer(&self, command: Message, first: bool) -> Result<Offered, Error>;

    /// Whether a command that was offered lies where it was laid down, and nobody is done with it yet.
    ///
    /// # Errors
    /// When that cannot be found out.
    async fn is_waiting(&self, effect: &EffectName, offered: &Offered) -> Result<bool, Error>;

    /// The word under a subject.
    ///
    /// # Errors
    /// When that cannot be found out.
    async fn word(&self, subject: &str, look: Look) -> Result<Option<Message>, Error>;

    /// Says a word on a command: it counts if it is the first.
    ///
    /// # Errors
    /// When it is not known whether it was the first; saying it again is harmless.
    async fn say(&self, word: Message) -> Result<FirstWord, Error>;

    /// Listens to all words said from now on.
    ///
    /// # Errors
    /// When the queue cannot be reached.
    async fn listen(&self) -> Result<Box<dyn Words>, Error>;

    /// Takes the jobs of an effect, together with all others who do.
    ///
    /// # Errors
    /// When the queue cannot be reached or refuses.
    async fn jobs(&self, wanted: Wanted) -> Result<Box<dyn Jobs>, Error>;

    /// Puts a dead letter where operators find it.
    ///
    /// # Errors
    /// When it was not taken.
    async fn bury(&self, letter: Message) -> Result<(), Error>;
}

/// A command that lies in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Its subject.
    pub subject: String,
    /// Where it lies.
    pub sequence: u64,
    /// It lay there before.
    pub found: bool,
}

/// How thoroughly to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Whoever is nearest is asked; a word that was said a moment ago may not be known there yet.
    Quick,
    /// Whoever decides is asked.
    Sure,
}

/// Whose word counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstWord {
    /// The one that was said.
    Ours,
    /// This one, which was said before.
    Theirs(Message),
}

/// What somebody who performs wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which effect.
    pub effect: EffectName,
    /// Whose; `None`: everybody's.
    pub tenants: Option<BTreeSet<TenantId>>,
    /// A job of whose taker nothing is heard for this long is handed to another.
    pub ack_wait: Duration,
}

/// The words as they are said.
#[async_trait]
pub trait Words: Send {
    /// Waits for words and returns at least one. Dropping the future loses nothing.
    async fn next(&mut self) -> Vec<Message>;
}

/// The jobs of an effect.
#[async_trait]
pub trait Jobs: Send {
    /// Waits for jobs and returns at least one and at most `max`. Of what it asks for, never more than `max` is under way
    /// to here at once. Dropping the future loses nothing.
    async fn next(&mut self, max: usize) -> Vec<Job>;
}

/// A job in somebody's hands.
#[derive(Clone)]
pub struct Job {
    /// The command.
    pub message: Arc<Message>,
    /// Where it lies.
    pub sequence: u64,
    /// 1 when nobody had it before.
    pub deliveries: u64,
    /// To say how it goes.
    pub receipt: Arc<dyn JobReceipt>,
}

/// Says how a job goes. What does not arrive is made good by handing the job out again.
#[async_trait]
pub trait JobReceipt: Send + Sync + 'static {
    /// Somebody is at it.
    async fn alive(&self);

    /// It is done with.
    async fn done(&self);

    /// Not now: hand it out again after this.
    async fn later(&self, after: Duration);

    /// It can never be done: hand it out to nobody.
    async fn never(&self);
}

/// Where the command of an effect lies.
#[must_use]
pub fn command_subject(item: &WorkItem, effect: &EffectName) -> String {
    subject(item, Kind::Effect, effect)
}

/// Where the word on an effect lies.
#[must_use]
pub fn result_subject(item: &WorkItem, effect: &EffectName) -> String {
    subject(item, Kind::EffectResult, effect)
}

fn subject(item: &WorkItem, kind: Kind, effect: &EffectName) -> String {
    Subject::new(item.instance.tenant.clone(), kind, effect.as_str(), item.id.to_string()).to_string()
}
