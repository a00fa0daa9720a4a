//! SQL statements that maintain the tables. Each statement applies a whole response, passed as one
//! JSON text.
//!
//! A row is replaced only by data of a later commit or of a later generation.

/// Schema of the tables.
pub(crate) const SCHEMA: &str = include_str!("schema.sql");

/// Selects whether the tables lack columns that an earlier release did not have.
pub(crate) const LACKS_COLUMNS: &str = "SELECT NOT EXISTS (SELECT FROM pg_attribute \
     WHERE attrelid = 'orlog_history'::regclass AND attname = 'attempts' AND NOT attisdropped)";

/// Adds these columns. Rows that are already exported keep null.
pub(crate) const ADD_COLUMNS: &str = "ALTER TABLE orlog_instances ADD COLUMN attention text; \
     ALTER TABLE orlog_history ADD COLUMN data jsonb, ADD COLUMN variables jsonb, \
     ADD COLUMN failure jsonb, \
     ADD COLUMN attempts jsonb";

/// Statements that convert the lines of one kind to rows of one table.
pub(crate) struct EntityStatements {
    /// Name of the kind in the lines.
    pub(crate) name: &'static str,
    /// Upserts rows. Parameters: lines, generation.
    pub(crate) put: &'static str,
    /// Deletes rows. Parameters: lines, generation.
    pub(crate) delete: &'static str,
    /// Deletes rows that the snapshot of this generation does not contain. Parameters: generation;
    /// tenant, or null for all.
    pub(crate) sweep: &'static str,
}

macro_rules! kind {
    (
        $name:literal,
        $table:literal,
        key: [$($key:ident as $kind:literal = $from:literal),+],
        fields: [$($field:ident = $value:literal),+]
    ) => {
        EntityStatements {
            name: $name,
            put: concat!(
                "INSERT INTO ", $table, " (tenant, shard, position, generation",
                $(", ", stringify!($key),)+ $(", ", stringify!($field),)+
                ") SELECT l->>'tenant', (l->>'shard')::integer, (l->>'position')::bigint, $2",
                $(", (l->'key'->>'", $from, "')::", $kind,)+ $(", ", $value,)+
                " FROM (SELECT l, l->'value' AS v",
                " FROM jsonb_array_elements($1::jsonb) AS l) AS lines",
                " ON CONFLICT (tenant", $(", ", stringify!($key),)+
                ") DO UPDATE SET shard = excluded.shard,",
                " position = excluded.position, generation = excluded.generation",
                $(", ", stringify!($field), " = excluded.", stringify!($field),)+
                " WHERE (excluded.generation, excluded.position) >= (",
                $table, ".generation, ", $table, ".position)"
            ),
            delete: concat!(
                "DELETE FROM ", $table,
                " AS t USING jsonb_array_elements($1::jsonb) AS l WHERE t.tenant = l->>'tenant'",
                $(" AND t.", stringify!($key), " = (l->'key'->>'", $from, "')::", $kind,)+
                " AND (t.generation, t.position) <= ($2, (l->>'position')::bigint)"
            ),
            sweep: concat!(
                "DELETE FROM ", $table,
                " WHERE generation < $1 AND ($2::text IS NULL OR tenant = $2)"
            ),
        }
    };
}

/// All kinds.
pub(crate) const KINDS: [EntityStatements; 4] = [
    kind!("instance", "orlog_instances",
    key: [saga as "text" = "saga", correlation as "text" = "correlation"],
    fields: [
        reference = "v->>'reference'",
        status = "v->>'status'",
        paused = "(v->>'paused')::boolean",
        version = "(v->>'version')::bigint",
        definition_version = "(v->'definition'->>'version')::bigint",
        definition_hash = "v->'definition'->>'hash'",
        waits = "v->'waits'",
        state = "nullif(v->'state', 'null')",
        last_error_code = "v->'last_error'->>'code'",
        last_error_message = "v->'last_error'->>'message'",
        parent = "nullif(v->'parent', 'null')",
        last_input_id = "v->>'last_input_id'",
        node = "v->>'node'",
        trace_id = "v->>'trace_id'",
        created_at = "(v->>'created_at')::timestamptz",
        updated_at = "(v->>'updated_at')::timestamptz",
        attention = "v->>'attention'"
    ]),
    kind!("task", "orlog_tasks",
    key: [id as "uuid" = "id"],
    fields: [
        saga = "v->>'saga'",
        correlation = "v->>'correlation'",
        status = "v->>'status'",
        tag = "v->>'tag'",
        title = "v->>'title'",
        roles = "ARRAY(SELECT jsonb_array_elements_text(v->'roles'))",
        assignee = "v->>'assignee'",
        claimed_by = "v->>'claimed_by'",
        due = "(v->>'due')::timestamptz",
        outcomes = "ARRAY(SELECT jsonb_array_elements_text(v->'outcomes'))",
        outcome = "v->>'outcome'",
        data = "nullif(v->'data', 'null')",
        opened_at = "(v->>'opened_at')::timestamptz",
        updated_at = "(v->>'updated_at')::timestamptz"
    ]),
    kind!("task_event", "orlog_task_events",
    key: [task as "uuid" = "task", sequence as "bigint" = "sequence"],
    fields: [
        kind = "v->>'kind'",
        user_name = "v->>'user'",
        reason = "v->>'reason'",
        at = "(v->>'at')::timestamptz",
        assignee = "v->>'assignee'",
        roles = "CASE WHEN v ? 'roles' \
                 THEN ARRAY(SELECT jsonb_array_elements_text(v->'roles')) END",
        outcome = "v->>'outcome'"
    ]),
    kind!("history", "orlog_history",
    key: [
        saga as "text" = "saga",
        correlation as "text" = "correlation",
        version as "bigint" = "version"
    ],
    fields: [
        at = "(v->>'at')::timestamptz",
        input_id = "v->>'input_id'",
        input_label = "v->>'input_label'",
        note = "v->>'note'",
        status = "v->>'status'",
        work = "v->'work'",
        kind = "v->>'kind'",
        node = "v->>'node'",
        delay_ms = "(v->>'delay_ms')::numeric",
        data = "nullif(v->'data', 'null')",
        variables = "nullif(v->'variables', 'null')",
        failure = "nullif(v->'failure', 'null')",
        attempts = "nullif(v->'attempts', 'null')"
    ]),
];

/// Selects the row of a scope: format, kinds, cursor, generation, and whether its snapshot is
/// incomplete.
pub(crate) const SELECT_STATE: &str =
    "SELECT format, kinds, cursor, generation, snapshotting FROM orlog_export WHERE scope = $1";
/// Starts a generation. Parameters: scope, format, kinds. Returns the generation number.
pub(crate) const INSERT_STATE: &str = "INSERT INTO orlog_export \
     (scope, format, kinds, cursor, snapshotting, generation, updated_at) \
     VALUES ($1, $2, $3, NULL, true, \
     (SELECT coalesce(max(generation), 0) + 1 FROM orlog_export), now()) \
     ON CONFLICT (scope) DO UPDATE SET format = excluded.format, kinds = excluded.kinds, \
     cursor = NULL, snapshotting = true, \
     generation = excluded.generation, updated_at = excluded.updated_at RETURNING generation";
/// Moves the cursor. Parameters: scope, new cursor, snapshotting, generation, old cursor. Has no
/// effect if another export moved the cursor.
pub(crate) const UPDATE_STATE: &str = "UPDATE orlog_export \
     SET cursor = $2, snapshotting = $3, updated_at = now() \
     WHERE scope = $1 AND generation = $4 AND cursor IS NOT DISTINCT FROM $5";
