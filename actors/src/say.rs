//! The fields of every log line that concerns an instance: `tenant`, `saga`, `correlation` and `trace_id`, always under these
//! names, as docs/logs.md promises.

/// Logs about an instance: the level, its key, its trace where there is one, and what `tracing::event!` takes besides.
macro_rules! about {
    ($level:ident, $key:expr, $trace:expr, $($rest:tt)+) => {
        tracing::event!(
            tracing::Level::$level,
            tenant = %$key.tenant,
            saga = %$key.saga,
            correlation = %$key.correlation,
            trace_id = Option::<&orlog_model::TraceParent>::map($trace, orlog_model::TraceParent::trace_id),
            $($rest)+
        )
    };
}

pub(crate) use about;
