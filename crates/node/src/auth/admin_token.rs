//! Authentication by the token of the administrator: one random text in a file.
//!
//! Without a configured file, the node creates `admin-token` in its data directory. A changed file
//! is read again, so the token can be replaced without a restart.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use orlog_effect::secret::{Secret, SecretRef};

use super::caller::{AuthError, Caller, RequestCredentials};
use super::session::SessionToken;
use super::shared_secret::{self, FailureLog};
use crate::config::Config;
use crate::private_file;

/// Name of the created file in the data directory.
const FILE: &str = "admin-token";
/// User of all requests with the token.
const USER: &str = "admin";
/// Access of users that are neither the owner of a file nor in its group. Kubernetes gives the
/// group of a pod access to its volumes (`fsGroup`).
const OTHERS: u32 = 0o007;

pub(super) struct AdminToken {
    file: PathBuf,
    secret: SecretRef,
    reads: FailureLog,
}

/// Returns the file with the token of the administrator.
#[must_use]
pub fn admin_token_file(config: &Config) -> PathBuf {
    config
        .auth
        .token
        .file
        .clone()
        .unwrap_or_else(|| config.data_dir.join(FILE))
}

/// Checks that the token of the administrator can be used.
///
/// # Errors
/// If the file is unreadable, if other users can read it, or if it contains no token.
pub fn check_admin_token(file: &Path) -> anyhow::Result<()> {
    read(file, &SecretRef::of_file(std::path::absolute(file)?)).map(drop)
}

impl AdminToken {
    /// Reads the token. The file in the data directory is created if it is missing or empty; a
    /// configured file is not, because a missing mount would otherwise go unnoticed.
    ///
    /// # Errors
    /// Like [`check_admin_token`], or if the file cannot be created.
    pub(super) fn open(config: &Config) -> anyhow::Result<Self> {
        let file = std::path::absolute(admin_token_file(config))?;
        if config.auth.token.file.is_none() && is_missing_or_empty(&file)? {
            let text = format!("{}\n", SessionToken::random()?.expose());
            private_file::replace(&file, text.as_bytes()).with_context(|| {
                format!("cannot create {}; set auth.token.file", file.display())
            })?;
            tracing::info!(file = %file.display(), "administrator token created");
        }

        let token = Self {
            secret: SecretRef::of_file(file.clone()),
            file,
            reads: FailureLog::default(),
        };
        // Read once, so that an unusable token prevents the start instead of rejecting each
        // request.
        token.read().context("auth.token.file")?;
        tracing::info!(file = %token.file.display(), "requests require the administrator token");

        Ok(token)
    }

    fn read(&self) -> anyhow::Result<Secret> {
        read(&self.file, &self.secret)
    }

    pub(super) fn caller(&self, credentials: &RequestCredentials<'_>) -> Result<Caller, AuthError> {
        let Some(provided) = shared_secret::bearer(credentials)? else {
            let remedy = "this node requires the administrator token: set ORLOG_TOKEN_FILE to its \
                file, or send the header `authorization: Bearer …`";
            return Err(AuthError::Missing(remedy.to_owned()));
        };

        // Read for each request, so that a replaced token applies at once.
        let known = self.reads.check(self.read())?;
        if shared_secret::is_same(provided, known.expose().trim()) {
            return Ok(Caller {
                name: Some(USER.to_owned()),
                ..Caller::unauthenticated()
            });
        }

        Err(AuthError::Invalid(
            "the token is not the administrator token of this node".to_owned(),
        ))
    }
}

fn is_missing_or_empty(file: &Path) -> anyhow::Result<bool> {
    match fs::read(file) {
        Ok(bytes) => Ok(bytes.trim_ascii().is_empty()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        // Not a missing file: a new token would replace one that clients still use.
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

fn read(file: &Path, secret: &SecretRef) -> anyhow::Result<Secret> {
    let path = file.display();
    let metadata = fs::metadata(file).with_context(|| format!("cannot read {path}"))?;
    ensure!(
        metadata.permissions().mode() & OTHERS == 0,
        "other users can access {path}; run `chmod o= {path}`"
    );

    let secret = secret.resolve()?;
    let text = secret.expose().trim();
    shared_secret::check_token(text).with_context(|| path.to_string())?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::shared_secret::MIN_TOKEN_BYTES as MIN_BYTES;

    fn config(dir: &Path) -> Config {
        Config {
            data_dir: dir.to_owned(),
            ..Config::default()
        }
    }

    fn caller(token: &AdminToken, header: &str) -> Result<Caller, AuthError> {
        let headers = vec![("authorization", header.as_bytes())];
        token.caller(&RequestCredentials {
            headers,
            source: None,
        })
    }

    #[track_caller]
    fn rejection(config: &Config) -> String {
        format!("{:#}", AdminToken::open(config).err().unwrap())
    }

    #[test]
    fn created_token_is_private_random_and_stays() {
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let text = |dir: &tempfile::TempDir| fs::read_to_string(dir.path().join(FILE)).unwrap();
        AdminToken::open(&config(one.path())).unwrap();
        let first = text(&one);
        assert_eq!(first.trim().len(), 64);
        assert_eq!(
            fs::metadata(one.path().join(FILE))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
        let again = AdminToken::open(&config(one.path())).unwrap();
        assert_eq!(text(&one), first);
        let admin = caller(&again, &format!("Bearer {}", first.trim())).unwrap();
        assert_eq!(admin.name.as_deref(), Some(USER));
        AdminToken::open(&config(two.path())).unwrap();
        assert_ne!(text(&two), first);
    }

    #[test]
    fn empty_file_of_a_crash_is_filled() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "\n").unwrap();
        let token = AdminToken::open(&config(dir.path())).unwrap();
        assert!(matches!(
            caller(&token, "Bearer "),
            Err(AuthError::Invalid(_))
        ));
        assert_eq!(
            fs::metadata(&token.file).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn token_that_other_users_can_read_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        AdminToken::open(&config(dir.path())).unwrap();
        for (mode, accepted) in [(0o644, false), (0o602, false), (0o440, true), (0o660, true)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            if accepted {
                AdminToken::open(&config(dir.path())).unwrap();
            } else {
                let error = rejection(&config(dir.path()));
                assert!(
                    error.contains("other users can access") && error.contains("chmod o="),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn configured_file_is_never_created_and_contains_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mounted");
        let mut config = config(dir.path());
        config.auth.token.file = Some(file.clone());
        assert!(rejection(&config).contains("cannot read"));
        assert!(!file.exists() && !dir.path().join(FILE).exists());
        for invalid in ["", "short", &"ü".repeat(32), &"two words ".repeat(8)] {
            private_file::replace(&file, invalid.as_bytes()).unwrap();
            let error = rejection(&config);
            assert!(
                error.contains("mounted") && (invalid.is_empty() || !error.contains(invalid)),
                "{error}"
            );
        }
    }

    #[test]
    fn replaced_token_applies_without_a_restart_and_callers_see_no_path() {
        let dir = tempfile::tempdir().unwrap();
        let token = AdminToken::open(&config(dir.path())).unwrap();
        let (old, new) = (
            fs::read_to_string(&token.file).unwrap(),
            "n".repeat(MIN_BYTES),
        );
        private_file::replace(&token.file, new.as_bytes()).unwrap();
        assert!(matches!(
            caller(&token, &format!("bearer {}", old.trim())),
            Err(AuthError::Invalid(_))
        ));
        caller(&token, &format!("bearer {new}")).unwrap();
        fs::remove_file(&token.file).unwrap();
        let Err(AuthError::Unavailable(message)) = caller(&token, &format!("bearer {new}")) else {
            panic!()
        };
        assert!(!message.contains(FILE), "{message}");
        assert!(matches!(
            caller(&token, "Basic abc"),
            Err(AuthError::Missing(_))
        ));
    }
}
