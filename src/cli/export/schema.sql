-- What `orlog export` keeps in PostgreSQL, format 1. Made by it where it is missing.

-- One row for each tenant that is exported (`tenant:<name>`), or one for all of them (`all`).
CREATE TABLE orlog_export (
    scope      text PRIMARY KEY,
    format     integer NOT NULL,
    kinds      text NOT NULL,
    cursor     text,
    scanning   boolean NOT NULL,  -- the first pass is not over: something may be missing
    generation bigint NOT NULL,   -- grows when everything is copied anew
    updated_at timestamptz NOT NULL
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
    parent             jsonb,          -- saga, correlation, work_id, depth of the saga that began it
    last_input         text NOT NULL,
    node               text NOT NULL,
    trace_id           text,
    created_at         timestamptz,
    updated_at         timestamptz,
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
    roles       text[] NOT NULL, -- empty: everybody
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

-- In the order of `number` within a task; rows are only added, and removed with their task.
CREATE TABLE orlog_task_events (
    tenant     text NOT NULL,
    task       uuid NOT NULL,
    number     bigint NOT NULL,
    what       text NOT NULL, -- opened, claimed, released, reassigned, escalated, completed, closed
    by         text,          -- null: the saga
    reason     text,
    at         timestamptz,
    assignee   text,
    roles      text[],
    outcome    text,
    shard      integer NOT NULL,
    position   bigint NOT NULL,
    generation bigint NOT NULL,
    PRIMARY KEY (tenant, task, number)
);

-- One row a transition; only with --kinds …,history.
CREATE TABLE orlog_history (
    tenant      text NOT NULL,
    saga        text NOT NULL,
    correlation text NOT NULL,
    version     bigint NOT NULL,
    at          timestamptz,
    input       text NOT NULL,
    label       text NOT NULL,
    note        text NOT NULL,
    status      text NOT NULL,
    work        jsonb NOT NULL, -- a list of label, id
    kind        text,
    node        text,
    waited_ms   numeric,
    shard       integer NOT NULL,
    position    bigint NOT NULL,
    generation  bigint NOT NULL,
    PRIMARY KEY (tenant, saga, correlation, version)
);
