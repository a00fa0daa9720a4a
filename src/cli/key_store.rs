//! Keys of the user of the command line: files in `~/.config/orlog/keys`, and the name of the key
//! that signs requests.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use orlog_signature::{PublicKey, SigningKey};

use super::exit::CommandError;
use orlog_node::private_file;

/// Extension of the files.
const EXTENSION: &str = "key";
/// File with the name of the key that signs requests.
const ACTIVE: &str = "active-key";
/// Access of other users.
const OTHERS: u32 = 0o077;

/// Keys of a user.
pub(super) struct KeyStore(PathBuf);

impl KeyStore {
    /// Returns the keys of the user of the process.
    pub(super) fn of_user() -> Result<Self, CommandError> {
        let directory = |name: &str| {
            std::env::var_os(name)
                .filter(|dir| !dir.is_empty())
                .map(PathBuf::from)
        };
        let config =
            directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")));
        let missing =
            "no directory for keys: set HOME, or name a file (--key ./FILE, ORLOG_KEY_FILE)";

        Ok(Self(
            config
                .ok_or_else(|| CommandError::usage(missing))?
                .join("orlog"),
        ))
    }

    /// Returns the file of a key.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join("keys").join(format!("{name}.{EXTENSION}"))
    }

    /// Creates a key.
    pub(super) fn create(&self, name: &str) -> Result<SigningKey, CommandError> {
        check_name(name)?;
        let file = self.file(name);
        // A replaced private key could not be restored, and its actor would lose the access.
        if file.exists() {
            let message = format!(
                "the key {name:?} exists ({}); choose another --name",
                file.display()
            );
            return Err(CommandError::usage(message));
        }

        let pem = SigningKey::generate_pem()
            .map_err(|error| CommandError::internal(error.to_string()))?;
        let written = private_file::replace(&file, pem.as_bytes());
        written.map_err(|error| {
            CommandError::failed(format!("cannot write {}: {error}", file.display()))
        })?;

        // Read again, so that a file that cannot be used is an error now.
        read(&file)
    }

    /// Reads a key.
    pub(super) fn get(&self, name: &str) -> Result<SigningKey, CommandError> {
        check_name(name)?;
        let file = self.file(name);
        if !file.exists() {
            let names = self.names()?.join(", ");
            let known = if names.is_empty() {
                "there are none".to_owned()
            } else {
                format!("keys: {names}")
            };
            let message = format!(
                "no key {name:?} in {}; {known}; `orlog key new` creates one",
                self.0.display()
            );

            return Err(CommandError::usage(message));
        }

        read(&file)
    }

    /// Returns the names of all keys, in order.
    pub(super) fn names(&self) -> Result<Vec<String>, CommandError> {
        let entries = match fs::read_dir(self.0.join("keys")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut names = Vec::new();

        for entry in entries {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == EXTENSION)
                && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
            {
                names.push(name.to_owned());
            }
        }

        names.sort_unstable();
        Ok(names)
    }

    /// Returns the name of the key that signs requests, if one is selected.
    pub(super) fn active(&self) -> Result<Option<String>, CommandError> {
        match fs::read_to_string(self.0.join(ACTIVE)) {
            Ok(name) => Ok(Some(name.trim().to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Selects the key that signs requests; `None`: no request is signed.
    pub(super) fn set_active(&self, name: Option<&str>) -> Result<(), CommandError> {
        let file = self.0.join(ACTIVE);
        match name {
            Some(name) => {
                // A selection without a usable key would fail every later command.
                self.get(name)?;
                Ok(private_file::replace(
                    &file,
                    format!("{name}\n").as_bytes(),
                )?)
            }
            None => match fs::remove_file(file) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
                Ok(()) | Err(_) => Ok(()),
            },
        }
    }
}

/// Reads the key of `--key`: a name in the store, or a file.
pub(super) fn of_argument(key: &Path) -> Result<SigningKey, CommandError> {
    // A name has no dot and no slash, so that `./FILE` is always a file.
    match key.to_str().filter(|text| is_name(text)) {
        Some(name) => KeyStore::of_user()?.get(name),
        None => read(key),
    }
}

/// Reads the private key of an argument: a name in the store, a file, or a public key whose private
/// key is in the store.
pub(crate) fn holder(key: &str) -> Result<SigningKey, CommandError> {
    // Public keys have a prefix with a colon, which no name has.
    let Ok(public) = key.parse::<PublicKey>() else {
        return of_argument(Path::new(key));
    };

    let store = KeyStore::of_user()?;
    let names = store.names()?;
    // Unreadable keys are omitted: one of the others can be the right one.
    let mut known = names.iter().filter_map(|name| store.get(name).ok());
    known.find(|known| known.public_key() == public).ok_or_else(|| {
        CommandError::usage(format!(
            "the private key of {public} is not in {}; run the command where it is, name its file, \
             or state the --proof that its holder creates with `orlog key prove NAME --actor \
             ACTOR`",
            store.0.display()
        ))
    })
}

/// Reads the selected key of the user, if there is one.
pub(super) fn selected() -> Result<Option<SigningKey>, CommandError> {
    // Without a home directory, no key is selected.
    let Ok(store) = KeyStore::of_user() else {
        return Ok(None);
    };
    // A selected key that is missing is an error: requests must not be sent without credentials
    // instead.
    store.active()?.map(|name| store.get(&name)).transpose()
}

/// Reads the file of a key that other users cannot access.
fn read(file: &Path) -> Result<SigningKey, CommandError> {
    let path = file.display();
    // As with SSH, a private key that other users can read is rejected.
    let pem = private_file::read(file, OTHERS).map_err(|error| {
        CommandError::usage(format!(
            "the key {path} (--key, ORLOG_KEY_FILE) cannot be used: {error}"
        ))
    })?;
    SigningKey::from_pem(&pem).map_err(|error| CommandError::usage(format!("{path}: {error}")))
}

fn check_name(name: &str) -> Result<(), CommandError> {
    if is_name(name) {
        return Ok(());
    }
    let message =
        format!("invalid name {name:?} of a key; use letters, digits, - and _, at most 64");
    Err(CommandError::usage(message))
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(is_valid)
}

fn is_valid(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}
