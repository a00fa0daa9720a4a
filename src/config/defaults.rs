//! The defaults as a table, to lay other layers over.

use toml::Table;

/// Every key with its default.
pub(super) fn table() -> Table {
    super::DEFAULT.parse().expect("a test reads the file of defaults")
}
