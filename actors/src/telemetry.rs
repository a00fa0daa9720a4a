//! Metrics, traces and logs of the actors.

pub(crate) mod metrics;
pub(crate) mod trace_context;
pub mod tracer;

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
