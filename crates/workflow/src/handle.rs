//! Handle of an instance in execution.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;

use crate::backend::{Backend, InstanceId};
use crate::driver::{CANCEL, Input};
use crate::outcome::{RunError, typed_output};
use crate::progress::Progress;
use crate::value::{Data, Value, encode};

/// Receiver of the inputs of an instance.
pub(crate) enum Inputs {
    Volatile(mpsc::UnboundedSender<Input>),
    Stored(Arc<dyn Backend>),
}

/// Handle of an instance that a runner executes in the background. Dropping it does not stop the
/// instance.
pub struct Handle<Out> {
    id: InstanceId,
    task: JoinHandle<Result<Value, RunError>>,
    inputs: Inputs,
    /// Progress from the start on, until it is taken.
    first: Mutex<Option<broadcast::Receiver<Progress>>>,
    progress: broadcast::Receiver<Progress>,
    output: PhantomData<fn() -> Out>,
}

impl<Out> Handle<Out> {
    /// `progress` was created before the instance started.
    pub(crate) fn new(
        id: InstanceId,
        task: JoinHandle<Result<Value, RunError>>,
        inputs: Inputs,
        progress: broadcast::Receiver<Progress>,
    ) -> Self {
        let latest = progress.resubscribe();
        Self {
            id,
            task,
            inputs,
            first: Mutex::new(Some(progress)),
            progress: latest,
            output: PhantomData,
        }
    }
}

impl<Out: Data> Handle<Out> {
    /// Returns the id of the instance.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the progress of the instance: the first call from the start on, later calls from now
    /// on. A consumer that is more than 1024 events behind misses the oldest.
    pub fn events(&self) -> impl Stream<Item = Progress> + Send + Unpin + use<Out> {
        let first = self.first.lock().take();
        Box::pin(stream(first.unwrap_or_else(|| self.progress.resubscribe())))
    }

    /// Sends a signal to the step with this name. It is stored until the step waits for it.
    ///
    /// # Errors
    /// [`RunError::NotFound`] if the instance has ended; [`RunError::Value`] and
    /// [`RunError::Backend`].
    pub async fn signal<S: Data>(&self, name: &str, payload: &S) -> Result<(), RunError> {
        let payload = encode(payload).map_err(|reason| RunError::Value { reason })?;
        self.send(name, payload).await
    }

    /// Cancels the instance: started tasks are dropped, completed ones are compensated.
    ///
    /// # Errors
    /// [`RunError::NotFound`] if the instance has ended; [`RunError::Backend`].
    pub async fn cancel(&self) -> Result<(), RunError> {
        self.send(CANCEL, Bytes::new()).await
    }

    /// Waits for the end and returns the output.
    ///
    /// # Errors
    /// The end of the instance without an output.
    pub async fn outcome(self) -> Result<Out, RunError> {
        // The runtime stops, or a bug panics: the instance has no end in this process.
        typed_output(self.task.await.unwrap_or(Err(RunError::Suspended)))
    }

    async fn send(&self, name: &str, payload: Bytes) -> Result<(), RunError> {
        let is_sent = match &self.inputs {
            Inputs::Volatile(inputs) => inputs
                .send(Input {
                    name: name.to_owned(),
                    payload,
                    // Only stored signals have numbers.
                    number: 0,
                })
                .is_ok(),
            Inputs::Stored(backend) => backend.send_signal(&self.id, name, payload).await?,
        };

        if is_sent {
            Ok(())
        } else {
            Err(RunError::NotFound {
                id: self.id.to_string(),
            })
        }
    }
}

fn stream(receiver: broadcast::Receiver<Progress>) -> impl Stream<Item = Progress> + Send {
    futures::stream::unfold(receiver, |mut receiver| async {
        loop {
            match receiver.recv().await {
                Ok(progress) => return Some((progress, receiver)),
                // The oldest events are lost; the next one follows.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    })
}

impl<Out> std::fmt::Debug for Handle<Out> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
