-- Tables of `orlog export` in PostgreSQL, format 2. Created if missing.

-- One row per exported tenant (`tenant:<name>`), or one for all tenants (`all`).
CREATE TABLE orlog_export (
    scope        text PRIMARY KEY,
    format       integer NOT NULL,
    kinds        text NOT NULL,
    cursor       text,
    snapshotting boolean NOT NULL,  -- true: the first pass is incomplete
    generation   bigint NOT NULL,   -- grows with every new snapshot
    updated_at   timestamptz NOT NULL
);

CREATE TABLE orlog_instances (
    tenant             text NOT NULL,
    saga               text NOT NULL,
    correlation        text NOT NULL,
    reference          text,
    status             text NOT NULL,  -- running, compensating, completed, failed, cancelled, stuck
    paused             boolean NOT NULL,
    version            bigint NOT NULL,
    definition_version bigint NOT NULL,
    definition_hash    text NOT NULL,
    waits              jsonb NOT NULL, -- a list of kind, name, until
    state              jsonb,
    last_error_code    text,
    last_error_message text,
    parent             jsonb,          -- saga, correlation, work_id, depth of the parent saga
    last_input_id      text NOT NULL,
    node               text NOT NULL,
    trace_id           text,
    created_at         timestamptz,
    updated_at         timestamptz,
    attention          text,           -- stuck, unapplied_result, paused
    shard              integer NOT NULL,
    position           bigint NOT NULL,
    generation         bigint NOT NULL,
    PRIMARY KEY (tenant, saga, correlation)
);
CREATE INDEX orlog_instances_status ON orlog_instances (tenant, status, updated_at);

CREATE TABLE orlog_tasks (
    tenant      text NOT NULL,
    id          uuid NOT NULL,
    saga        text NOT NULL,
    correlation text NOT NULL,
    status      text NOT NULL,   -- open, claimed, completed, closed
    tag         text NOT NULL,
    title       text NOT NULL,
    roles       text[] NOT NULL, -- empty: all roles
    assignee    text,
    claimed_by  text,
    due         timestamptz,
    outcomes    text[] NOT NULL,
    outcome     text,
    data        jsonb,
    opened_at   timestamptz,
    updated_at  timestamptz,
    shard       integer NOT NULL,
    position    bigint NOT NULL,
    generation  bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX orlog_tasks_status ON orlog_tasks (tenant, status, due);
CREATE INDEX orlog_tasks_instance ON orlog_tasks (tenant, saga, correlation);

-- Ordered by `sequence` within a task. Rows are only inserted, and deleted with their task.
CREATE TABLE orlog_task_events (
    tenant     text NOT NULL,
    task       uuid NOT NULL,
    sequence   bigint NOT NULL,
    kind       text NOT NULL, -- opened, claimed, released, reassigned, escalated, completed, closed
    user_name  text,          -- null: the saga
    reason     text,
    at         timestamptz,
    assignee   text,
    roles      text[],
    outcome    text,
    shard      integer NOT NULL,
    position   bigint NOT NULL,
    generation bigint NOT NULL,
    PRIMARY KEY (tenant, task, sequence)
);

-- One row per transition; only with --kinds …,history.
CREATE TABLE orlog_history (
    tenant      text NOT NULL,
    saga        text NOT NULL,
    correlation text NOT NULL,
    version     bigint NOT NULL,
    at          timestamptz,
    input_id    text NOT NULL,
    input_label text NOT NULL,
    note        text NOT NULL,
    status      text NOT NULL,
    work        jsonb NOT NULL, -- a list of label, id, data
    kind        text,
    node        text,
    delay_ms    numeric,
    data        jsonb,          -- value, or beginning, and size
    variables   jsonb,          -- value: a list of before, after by name
    failure     jsonb,          -- code, message
    attempts    jsonb,          -- items, omitted
    shard       integer NOT NULL,
    position    bigint NOT NULL,
    generation  bigint NOT NULL,
    PRIMARY KEY (tenant, saga, correlation, version)
);
