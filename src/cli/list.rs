//! Lists of the API: fetched page by page up to a limit, printed as a table.

use std::num::NonZeroUsize;

use serde_json::{Value, json};

use super::client::{ApiClient, ServerArgs, check_complete};
use super::console::{Console, items, note};
use super::exit::CommandError;

/// Part of a list, and its node.
#[derive(Debug, clap::Args)]
pub(crate) struct PageArgs {
    /// Maximum number of results
    #[arg(long, default_value = "100")]
    limit: NonZeroUsize,
    /// Cursor of the previous page
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Entries of a list.
pub(crate) struct Listed {
    items: Vec<Value>,
    next_cursor: Option<String>,
    /// Responses without their entries.
    pub(crate) pages: Vec<Value>,
    /// Pods whose entries are missing.
    missing_pods: Vec<String>,
}

impl PageArgs {
    /// Returns a client of the node of the list.
    pub(crate) fn client(&self) -> Result<ApiClient, CommandError> {
        ApiClient::new(&self.server)
    }

    /// Fetches pages until the limit or the end. A page can be short or empty and still have a next
    /// page: the node scans a bounded number of rows.
    pub(crate) async fn fetch(
        &self,
        path: &str,
        query: &[(&'static str, Option<String>)],
    ) -> Result<Listed, CommandError> {
        let client = self.client()?;
        let filters = query
            .iter()
            .filter_map(|(name, value)| Some((*name, value.clone()?)));
        let filters: Vec<_> = filters.collect();
        let mut listed = Listed {
            items: Vec::new(),
            next_cursor: self.cursor.clone(),
            pages: Vec::new(),
            missing_pods: Vec::new(),
        };

        while listed.items.len() < self.limit.get() {
            let mut query = filters.clone();
            // The node reduces the limit to its own maximum.
            query.push(("limit", (self.limit.get() - listed.items.len()).to_string()));
            query.extend(listed.next_cursor.take().map(|cursor| ("cursor", cursor)));
            let mut page = client.get(path, &query).await?;
            listed.items.extend_from_slice(items(&page, "items"));
            listed.next_cursor = page["next_cursor"].as_str().map(str::to_owned);
            page["items"].take();
            listed.pages.push(page);

            if listed.next_cursor.is_none() {
                break;
            }
        }

        // After the last page: shards can move between two requests.
        listed.missing_pods = client.missing_pods();
        Ok(listed)
    }
}

impl Listed {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Prints the entries, one row for each.
    ///
    /// # Errors
    /// After the output, if entries of other pods are missing.
    pub(crate) fn print(
        &self,
        head: &[&str],
        row: impl Fn(&Value) -> Vec<String>,
        empty: &str,
        console: &Console,
    ) -> Result<(), CommandError> {
        if console.is_json() {
            let mut list = json!({ "items": self.items, "next_cursor": self.next_cursor });
            if !self.missing_pods.is_empty() {
                list["missing_pods"] = json!(self.missing_pods);
            }
            console.json(&list)?;
            return check_complete(&self.missing_pods);
        }

        console.table(head, &self.items.iter().map(row).collect::<Vec<_>>(), empty)?;
        if let Some(cursor) = &self.next_cursor {
            note(&format!(
                "more results possible; use --cursor {cursor}, or raise --limit"
            ));
        }

        check_complete(&self.missing_pods)
    }
}
