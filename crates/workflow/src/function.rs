//! Functions of a step, without types.

use std::sync::Arc;

use crate::error::TaskError;
use crate::task::{ErasedTask, ErasedUndo};
use crate::value::{Data, Value};

/// Condition over the value of a branch.
pub(crate) type Condition = Arc<dyn Fn(&mut Value) -> Result<bool, TaskError> + Send + Sync>;
/// List over the value of a branch.
pub(crate) type Split = Arc<dyn Fn(&mut Value) -> Result<Vec<Value>, TaskError> + Send + Sync>;

/// Functions of a step.
#[derive(Clone)]
pub(crate) enum Function {
    /// A delay, a fork or a child workflow has no function.
    None,
    Task(TaskFunctions),
    /// Condition of a `when` or of a loop.
    Condition(Condition),
    /// Elements of a list, and the list of their results.
    Each {
        split: Split,
        collect: fn(Vec<Value>) -> Result<Value, TaskError>,
    },
    /// Payload of a signal.
    Signal(SignalFunctions),
}

/// Functions of a wait for a signal.
#[derive(Clone, Copy)]
pub(crate) struct SignalFunctions {
    /// Adds the payload to the value.
    pub(crate) add: fn(Value, Value) -> Result<Value, TaskError>,
    /// Returns whether a payload has the type of the step.
    #[cfg(feature = "program")]
    pub(crate) check: fn(&mut Value) -> Result<(), TaskError>,
}

/// Task and its compensations.
#[derive(Clone)]
pub(crate) struct TaskFunctions {
    pub(crate) task: Arc<dyn ErasedTask>,
    pub(crate) undo: Option<Arc<dyn ErasedUndo>>,
    pub(crate) undo_unknown: Option<Arc<dyn ErasedUndo>>,
}

impl Function {
    pub(crate) fn task(task: Arc<dyn ErasedTask>) -> Self {
        Self::Task(TaskFunctions {
            task,
            undo: None,
            undo_unknown: None,
        })
    }

    pub(crate) fn condition<T: Data>(holds: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        Self::Condition(Arc::new(move |value| value.typed::<T>().map(&holds)))
    }

    pub(crate) fn each<T: Data, E: Data, R: Data>(
        split: impl Fn(&T) -> Vec<E> + Send + Sync + 'static,
    ) -> Self {
        let split = move |value: &mut Value| {
            let elements = split(value.typed::<T>()?);
            Ok(elements.into_iter().map(Value::new).collect())
        };
        Self::Each {
            split: Arc::new(split),
            collect: collect::<R>,
        }
    }

    pub(crate) fn signal<T: Data, S: Data>() -> Self {
        Self::Signal(SignalFunctions {
            add: |value, payload| Ok(Value::new((value.take::<T>()?, payload.take::<S>()?))),
            #[cfg(feature = "program")]
            check: |payload| payload.typed::<S>().map(drop),
        })
    }

    /// Returns the name of the kind, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Task(_) => "task",
            Self::Condition(_) => "condition",
            Self::Each { .. } => "list",
            Self::Signal(_) => "signal",
        }
    }
}

fn collect<R: Data>(values: Vec<Value>) -> Result<Value, TaskError> {
    let results: Result<Vec<R>, _> = values.into_iter().map(Value::take).collect();
    results.map(Value::new)
}
