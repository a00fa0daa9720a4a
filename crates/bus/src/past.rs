//! What lies in a stream already, read once: for replays, not for work.

use async_trait::async_trait;
use orlog_model::Timestamp;

use crate::{Delivery, Error};

/// The first message that is read, where it is there still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The one with this number.
    Sequence(u64),
    /// The first one that was published then or later.
    Time(Timestamp),
}

/// A part of a stream that ends where the stream ended when it was asked for. Nothing is acknowledged, no cursor is kept.
#[async_trait]
pub trait Past: Send {
    /// The next messages, in sequence order; none once the end is reached.
    ///
    /// # Errors
    /// When the bus is gone, or messages in between were dropped before they were read.
    async fn next(&mut self) -> Result<Vec<Delivery>, Error>;

    /// The last message of the stream when it was asked for: whoever wants what came since asks for what follows.
    fn end(&self) -> u64;
}
