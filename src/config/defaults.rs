//! Default values as a TOML table, the base of the other layers.

use toml::Table;

/// Returns every key with its default.
pub(super) fn table() -> Table {
    super::DEFAULT.parse().expect("a test parses the default configuration")
}
