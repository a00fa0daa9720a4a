//! The service: executes the three steps of an order for each system, and counts them.

mod orlog;
mod restate;

use std::sync::Arc;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::system::System;

/// Steps of an order.
pub(crate) const STEPS: [&str; 3] = ["reserve", "charge", "ship"];
/// Message to the load generator that precedes the counts; all others are orders that are done.
pub(crate) const COUNTS: u64 = u64::MAX;

/// The business logic: counts how often each step of each order is executed.
struct Steps {
    executions: Mutex<Vec<[u32; 3]>>,
    messages: UnboundedSender<u64>,
}

impl Steps {
    fn execute(&self, step: usize, order: u64) {
        let mut executions = self.executions.lock();
        let order = usize::try_from(order).expect("64 bits");
        if executions.len() <= order {
            executions.resize(order + 1, [0; 3]);
        }
        executions[order][step] += 1;
    }

    /// Informs the load generator.
    fn report(&self, message: u64) {
        // Without a load generator there is no use for the message.
        self.messages.send(message).ok();
    }

    /// Returns the number of orders whose steps were each executed once, and the number of executions.
    fn counts(&self) -> [u64; 2] {
        let executions = self.executions.lock();
        let exact = executions.iter().filter(|order| **order == [1; 3]).count() as u64;
        [
            exact,
            executions.iter().flatten().copied().map(u64::from).sum(),
        ]
    }
}

/// Serves the steps of `system` on `port`, or at the Orlog node on `server`, and one load generator on `control`.
pub(crate) async fn run(system: System, server: u16, port: u16, control: u16) -> Result<()> {
    let (messages, receiver) = unbounded_channel();
    let steps = Arc::new(Steps {
        executions: Mutex::default(),
        messages,
    });
    let control = TcpListener::bind(("127.0.0.1", control))
        .await
        .context("cannot listen for the load generator")?;
    let reports = report(control, Arc::clone(&steps), receiver);
    let work = async {
        match system {
            System::OrlogExchange => orlog::exchange(&steps, server).await,
            System::OrlogHttp => orlog::serve_http(&steps, port).await,
            System::RestateService | System::RestateWorkflow => restate::serve(&steps, port).await,
        }
    };
    tokio::try_join!(work, reports).map(drop)
}

/// Sends each message to the load generator, and the counts on request.
async fn report(
    control: TcpListener,
    steps: Arc<Steps>,
    mut messages: UnboundedReceiver<u64>,
) -> Result<()> {
    let (stream, _) = control.accept().await?;
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = stream.into_split();
    let requests = Arc::clone(&steps);
    tokio::spawn(async move {
        while reader.read_u8().await.is_ok() {
            requests.report(COUNTS);
        }
    });
    let (mut batch, mut bytes) = (Vec::new(), Vec::new());
    while messages.recv_many(&mut batch, 1024).await > 0 {
        bytes.clear();
        for message in batch.drain(..) {
            bytes.extend(message.to_be_bytes());
            if message == COUNTS {
                bytes.extend(steps.counts().iter().flat_map(|count| count.to_be_bytes()));
            }
        }
        writer
            .write_all(&bytes)
            .await
            .context("the load generator has closed its connection")?;
    }
    Ok(())
}
