//! Tables and statements of the backend in PostgreSQL.
//!
//! The column `available` is the time at which an instance becomes available: the end of its claim,
//! or its due time.

/// Lock that serializes concurrent creation of the tables.
pub(super) const SCHEMA_LOCK: &str = "SELECT pg_advisory_xact_lock(7310596)";

pub(super) const SCHEMA: [&str; 4] = [
    r#"CREATE TABLE IF NOT EXISTS orlog_workflow_instances (
        id text COLLATE "C" PRIMARY KEY,
        workflow text NOT NULL,
        hash text NOT NULL,
        epoch bigint NOT NULL,
        holder text,
        available bigint NOT NULL,
        ended bigint,
        state bytea NOT NULL,
        signal_count bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 70)"#,
    "CREATE INDEX IF NOT EXISTS orlog_workflow_available ON orlog_workflow_instances (available) \
    WHERE ended IS NULL",
    r#"CREATE TABLE IF NOT EXISTS orlog_workflow_signals (
        id text COLLATE "C" NOT NULL,
        number bigint NOT NULL,
        name text NOT NULL,
        payload bytea NOT NULL,
        PRIMARY KEY (id, number)
    )"#,
    "CREATE TABLE IF NOT EXISTS orlog_workflow_graphs (hash text PRIMARY KEY, graph bytea NOT \
    NULL)",
];

/// Kinds of the rows that [`WRITE`] returns.
pub(super) const CREATED: i32 = 0;
pub(super) const SAVED: i32 = 1;

/// Stores new instances ($1 to $6) and snapshots ($7 to $13), deletes the signals that the
/// snapshots contain, and notifies: the id of each instance that is released or has ended, and the
/// empty text if one became available.
///
/// `then`: 0 keeps the claim, 1 releases it, 2 ends the instance. $14 is the time at which nothing
/// is due.
pub(super) const WRITE: &str = "WITH created AS (
        INSERT INTO orlog_workflow_instances (id, workflow, hash, epoch, holder, available, state)
        SELECT id, workflow, hash, CASE WHEN holder IS NULL THEN 0 ELSE 1 END, holder, available,
            state
        FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bytea[])
            AS u (id, workflow, hash, holder, available, state)
        ON CONFLICT (id) DO NOTHING RETURNING id, holder),
    saved AS (
        UPDATE orlog_workflow_instances i SET
            state = u.state,
            hash = u.hash,
            holder = CASE u.then WHEN 0 THEN i.holder END,
            available = CASE
                WHEN u.then = 0 THEN i.available
                WHEN u.then = 2 THEN $14
                WHEN i.signal_count > u.last_signal THEN 0
                ELSE u.time END,
            ended = CASE u.then WHEN 2 THEN u.time END
        FROM unnest($7::text[], $8::bigint[], $9::text[], $10::bytea[], $11::bigint[], $12::int[],
                $13::bigint[])
            AS u (id, epoch, hash, state, last_signal, \"then\", time)
        WHERE i.id = u.id AND i.epoch = u.epoch AND i.holder IS NOT NULL AND i.ended IS NULL
        RETURNING i.id, i.epoch, u.last_signal, u.then),
    consumed AS (
        DELETE FROM orlog_workflow_signals s USING saved
        WHERE saved.last_signal > 0 AND s.id = saved.id AND s.number <= saved.last_signal)
    SELECT 0, id, 0::bigint FROM created
    UNION ALL SELECT 1, id, epoch FROM saved
    UNION ALL SELECT 2, pg_notify('orlog_workflow', id)::text, 0::bigint FROM (
        SELECT id FROM saved WHERE saved.then <> 0
        UNION ALL SELECT '' WHERE EXISTS (SELECT FROM created WHERE holder IS NULL)
            OR EXISTS (SELECT FROM saved WHERE saved.then = 1)) n";

pub(super) const EXTEND: &str = "UPDATE orlog_workflow_instances i SET available = u.until
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS u (id, epoch, until)
    WHERE i.id = u.id AND i.epoch = u.epoch AND i.holder IS NOT NULL AND i.ended IS NULL
    RETURNING i.id, i.epoch";

pub(super) const NOTIFY: &str =
    "SELECT pg_notify('orlog_workflow', id) FROM unnest($1::text[]) AS u (id)";

/// Wakes the consumers of all processes.
pub(super) const NOTIFY_ALL: &str = "SELECT pg_notify('orlog_workflow', '')";

pub(super) const LOAD: &str = "SELECT id, workflow, hash, epoch, state, signal_count \
    FROM orlog_workflow_instances WHERE id = ANY($1)";

pub(super) const FETCH: &str = "SELECT id, available FROM orlog_workflow_instances
    WHERE ended IS NULL AND available < $2 ORDER BY available LIMIT $1";

/// Locked rows are skipped: another worker claims them, or their holder writes them.
pub(super) const CLAIM: &str =
    "UPDATE orlog_workflow_instances i SET epoch = i.epoch + 1, holder = $2, available = $3
    FROM (SELECT id FROM orlog_workflow_instances
        WHERE id = ANY($1::text[]) AND ended IS NULL AND available <= $4 FOR UPDATE SKIP LOCKED) c
    WHERE i.id = c.id
    RETURNING i.id, i.workflow, i.hash, i.epoch, i.state, i.signal_count";

pub(super) const TAKE_OVER: &str =
    "UPDATE orlog_workflow_instances SET epoch = epoch + 1, holder = $2, available = $3
    WHERE id = $1 AND ended IS NULL
    RETURNING id, workflow, hash, epoch, state, signal_count";

pub(super) const SIGNAL: &str = "WITH woken AS (
        UPDATE orlog_workflow_instances SET signal_count = signal_count + 1,
            available = CASE WHEN holder IS NULL THEN 0 ELSE available END
        WHERE id = $1 AND ended IS NULL RETURNING signal_count)
    INSERT INTO orlog_workflow_signals (id, number, name, payload)
    SELECT $1, signal_count, $2, $3 FROM woken";

pub(super) const SIGNALS: &str = "SELECT number, name, payload FROM orlog_workflow_signals \
    WHERE id = $1 AND number > $2 ORDER BY number";

pub(super) const UNENDED: &str = "SELECT id FROM orlog_workflow_instances
    WHERE ended IS NULL AND ($1::text IS NULL OR id > $1) ORDER BY id LIMIT $2";

pub(super) const PUT_GRAPH: &str =
    "INSERT INTO orlog_workflow_graphs (hash, graph) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING";

pub(super) const GRAPH: &str = "SELECT graph FROM orlog_workflow_graphs WHERE hash = $1";

pub(super) const PURGE: &str =
    "WITH purged AS (DELETE FROM orlog_workflow_instances WHERE ended < $1 RETURNING id),
    signals AS (DELETE FROM orlog_workflow_signals s USING purged WHERE s.id = purged.id)
    SELECT count(*) FROM purged";
