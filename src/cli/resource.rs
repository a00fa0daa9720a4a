//! Resources of built-in sagas as commands: a list, the view of one instance, and its changes.

use serde_json::Value;

use super::client::{ApiClient, ServerArgs, path};
use super::console::Console;
use super::exit::CommandError;
use super::list::PageArgs;

/// Resource of the API, and how its instances are printed.
pub(crate) struct Resource {
    /// Segment of the path.
    pub(crate) name: &'static str,
    /// Head of the table of a list.
    pub(crate) head: &'static [&'static str],
    /// Returns the row of an instance in a list.
    pub(crate) row: fn(&Value) -> Vec<String>,
    /// Text of an empty list.
    pub(crate) empty: &'static str,
    /// Prints one instance.
    pub(crate) print: fn(&Value, &Console) -> Result<(), CommandError>,
}

impl Resource {
    /// Returns the path of an instance, or of one of its changes.
    pub(crate) fn path(&self, id: &str, rest: &[&str]) -> String {
        path(&[&["v1", self.name, id], rest].concat())
    }

    /// Prints the instances whose id has a prefix.
    pub(crate) async fn list(
        &self,
        prefix: Option<String>,
        page: &PageArgs,
        console: &Console,
    ) -> Result<(), CommandError> {
        let found = page
            .fetch(&path(&["v1", self.name]), &[("prefix", prefix)])
            .await?;
        found.print(self.head, self.row, self.empty, console)
    }

    /// Prints an instance.
    pub(crate) async fn show(
        &self,
        server: &ServerArgs,
        id: &str,
        console: &Console,
    ) -> Result<(), CommandError> {
        let found = ApiClient::new(server)?
            .get(&self.path(id, &[]), &[])
            .await?;
        (self.print)(&found, console)
    }

    /// Changes an instance, and prints it.
    pub(crate) async fn change(
        &self,
        server: &ServerArgs,
        id: &str,
        verb: &[&str],
        body: Value,
        console: &Console,
    ) -> Result<(), CommandError> {
        let changed = ApiClient::new(server)?
            .post(&self.path(id, verb), Some(&body))
            .await?;
        (self.print)(&changed, console)
    }
}
