//! Metrics, traces and logs of the actors.

pub(crate) mod metrics;
pub(crate) mod trace_context;
pub mod tracer;

/// Logs a record of an instance: the level, its key, its trace if present, and the arguments of
/// `tracing::event!`.
macro_rules! log_instance {
    ($level:ident, $key:expr, $trace:expr, $($rest:tt)+) => {
        tracing::event!(
            tracing::Level::$level,
            tenant = %$key.tenant,
            saga = %$key.saga,
            correlation = %$key.correlation,
            trace_id = Option::<&orlog_model::TraceParent>::map(
                $trace,
                orlog_model::TraceParent::trace_id
            ),
            $($rest)+
        )
    };
}

pub(crate) use log_instance;
