//! Descriptions of statements by the server, for all connections of a pool.
//!
//! Statements are only in the configuration, so the number of descriptions is bounded. A
//! description with columns of types that were created in the database is not shared: each
//! connection must read the types before the statement. Otherwise the driver reads them in between,
//! and so replaces the statement, which has no name.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sqlx::postgres::{PgStatement, PgTypeInfo};
use sqlx::{Column, Either, Statement as _, TypeInfo as _};

use super::super::scan::ParsedStatement;
use super::values;

/// First id of an object that is created in a database.
const FIRST_CREATED_OID: u32 = 16384;

/// Description of one statement.
pub(super) struct Description {
    /// Text of the statement, with a cast at each parameter.
    pub(super) sql: Arc<str>,
    pub(super) parameters: Vec<PgTypeInfo>,
    pub(super) returns_rows: bool,
    /// Whether the types of all columns exist in each database.
    has_built_in_columns: bool,
    /// First column without a JSON representation.
    pub(super) unreadable: Option<UnreadableColumn>,
}

pub(super) struct UnreadableColumn {
    pub(super) name: String,
    pub(super) kind: String,
}

impl Description {
    pub(super) fn of(
        statement: &ParsedStatement,
        prepared: &PgStatement,
    ) -> Result<Self, sqlx::Error> {
        let Some(Either::Left(parameters)) = prepared.parameters() else {
            return Err(sqlx::Error::Protocol(
                "the server did not report the parameters".to_owned(),
            ));
        };

        let unreadable = prepared
            .columns()
            .iter()
            .find(|column| !values::is_readable(column.type_info()))
            .map(|column| UnreadableColumn {
                name: column.name().to_owned(),
                kind: column.type_info().name().to_owned(),
            });
        let sql = statement.render(|index| match parameters.get(index) {
            Some(kind) => format!("(${}::text::{})", index + 1, values::cast(kind)),
            None => format!("${}", index + 1),
        });

        let mut kinds = prepared.columns().iter().map(Column::type_info);
        Ok(Self {
            sql: sql.into(),
            has_built_in_columns: kinds.all(is_built_in),
            parameters: parameters.to_vec(),
            returns_rows: !prepared.columns().is_empty(),
            unreadable,
        })
    }
}

fn is_built_in(kind: &PgTypeInfo) -> bool {
    kind.oid().is_some_and(|oid| oid.0 < FIRST_CREATED_OID)
}

/// Known descriptions, by the text of the statement without casts.
#[derive(Default)]
pub(super) struct Descriptions(Mutex<HashMap<String, Arc<Description>>>);

impl Descriptions {
    pub(super) fn find(&self, sql: &str) -> Option<Arc<Description>> {
        self.0.lock().get(sql).map(Arc::clone)
    }

    pub(super) fn insert(&self, sql: String, description: &Arc<Description>) {
        // Each connection must read the types that were created in the database, so their
        // description is not shared.
        if description.has_built_in_columns {
            self.0.lock().insert(sql, Arc::clone(description));
        }
    }

    pub(super) fn remove(&self, description: &Arc<Description>) {
        self.0
            .lock()
            .retain(|_, known| !Arc::ptr_eq(known, description));
    }
}
