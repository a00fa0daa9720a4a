//! Session of a development node: its token, in a file that only the user of the node can read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use orlog_node::auth::SessionToken;
use orlog_node::config::{AuthMode, Config};
use orlog_node::private_file;

use super::super::exit::CommandError;

const FILE: &str = "session-token";

/// Token of a running development node. Its file is removed when the node stops.
pub(super) struct Session {
    token: SessionToken,
    file: PathBuf,
    /// Set when the file belongs to this session.
    written: OnceLock<()>,
}

impl Session {
    /// Creates a token; `None` if the configuration states how callers are authenticated, or that
    /// they are not.
    pub(super) fn start(config: &Config) -> Result<Option<Self>, CommandError> {
        // A token is necessary on loopback too: other users of the machine reach it.
        if config.auth.mode != AuthMode::Off || config.auth.allow_unauthenticated {
            return Ok(None);
        }
        Ok(Some(Self {
            token: SessionToken::random()?,
            file: config.data_dir.join(FILE),
            written: OnceLock::new(),
        }))
    }

    pub(super) fn token(&self) -> &SessionToken {
        &self.token
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Writes the token to its file.
    pub(super) fn write(&self) -> Result<(), CommandError> {
        let text = format!("{}\n", self.token.expose());
        private_file::replace(&self.file, text.as_bytes()).map_err(|error| {
            CommandError::failed(format!("cannot write {}: {error}", self.file.display()))
        })?;
        // From here on, the drop removes the file. A node that did not start must not remove the
        // file of another one.
        self.written.get_or_init(|| ());
        Ok(())
    }

    /// Returns the link that carries the token into the web UI. A browser does not send the part
    /// after `#`.
    pub(super) fn link(&self, url: &str) -> String {
        format!("{url}/#token={}", self.token.expose())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.written.get().is_some() {
            // A killed process leaves the file, but each start has another token.
            fs::remove_file(&self.file).ok();
        }
    }
}
