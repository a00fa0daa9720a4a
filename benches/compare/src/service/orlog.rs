//! Orlog: the node sends an HTTP request for each step, or the service opens a stream that carries jobs down and results up.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures::{FutureExt, SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use super::{STEPS, Steps};

/// Jobs that the service accepts at a time: the maximum.
const CREDIT: usize = 1000;

/// Serves effects of the kind `http` on `port`.
pub(super) async fn serve_http(steps: &Arc<Steps>, port: u16) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .context("cannot listen for Orlog")?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let steps = Arc::clone(steps);
        let answer = service_fn(move |request| answer(Arc::clone(&steps), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

#[derive(Deserialize)]
struct Payload<'a> {
    order: &'a str,
}

async fn answer(
    steps: Arc<Steps>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let result = execute_request(&steps, request).await;
    let (status, body) = result.map_or_else(
        |error| (400, format!("{error:#}")),
        |()| (200, "{}".to_owned()),
    );
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    Ok(response
        .body(Full::new(Bytes::from(body)))
        .expect("a valid response"))
}

async fn execute_request(steps: &Steps, request: Request<Incoming>) -> Result<()> {
    let name = request.uri().path().trim_start_matches('/').to_owned();
    let step = STEPS
        .iter()
        .position(|step| *step == name)
        .with_context(|| format!("no step {name}"))?;
    let body = request.into_body().collect().await?.to_bytes();
    let order = serde_json::from_slice::<Payload<'_>>(&body)?
        .order
        .parse()?;
    steps.execute(step, order);
    if step == STEPS.len() - 1 {
        steps.report(order);
    }
    Ok(())
}

#[derive(Deserialize)]
struct Received<'a> {
    #[serde(default, borrow)]
    jobs: Vec<Job<'a>>,
    #[serde(default, borrow)]
    results: Vec<Acknowledgement<'a>>,
    problem: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Job<'a> {
    #[serde(rename = "job")]
    id: &'a str,
    claim: &'a str,
    effect: &'a str,
    correlation: &'a str,
}

#[derive(Deserialize)]
struct Acknowledgement<'a> {
    job: &'a str,
    status: &'a str,
}

#[derive(Serialize)]
struct Reports<'a> {
    credit: usize,
    results: &'a [Report],
}

#[derive(Serialize)]
struct Report {
    job: String,
    claim: String,
    result: &'static str,
}

/// Executes jobs of the node on the port `server`.
pub(super) async fn exchange(steps: &Steps, server: u16) -> Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", server))
        .await
        .context("Orlog does not listen")?;
    stream.set_nodelay(true)?;
    let url = format!("ws://127.0.0.1:{server}/v1/work/exchange");
    let (mut stream, _) = tokio_tungstenite::client_async(&url, stream)
        .await
        .with_context(|| format!("no stream at {url}"))?;
    let effects = STEPS.map(|step| format!("order.{step}"));
    let hello = json!({"worker": "compare", "effects": effects, "credit": CREDIT});
    stream.send(Message::text(hello.to_string())).await?;
    let mut worker = Worker {
        steps,
        reports: Vec::new(),
        shipped: HashMap::new(),
    };
    while let Some(message) = stream.next().await {
        worker.receive(message.context("the stream to Orlog failed")?)?;
        // All messages that have arrived get one response.
        while let Some(Some(message)) = stream.next().now_or_never() {
            worker.receive(message.context("the stream to Orlog failed")?)?;
        }
        if !worker.reports.is_empty() {
            let reports = Reports {
                credit: worker.reports.len(),
                results: &worker.reports,
            };
            let reports = Message::text(serde_json::to_string(&reports)?);
            worker.reports.clear();
            stream.send(reports).await?;
        }
    }
    bail!("Orlog closed the stream")
}

struct Worker<'a> {
    steps: &'a Steps,
    /// Results that are not sent.
    reports: Vec<Report>,
    /// Orders by the job of the last step, until its result is acknowledged.
    shipped: HashMap<String, u64>,
}

impl Worker<'_> {
    fn receive(&mut self, message: Message) -> Result<()> {
        let Message::Text(text) = message else {
            return Ok(());
        };
        let received: Received<'_> =
            serde_json::from_str(&text).with_context(|| format!("unexpected message {text}"))?;
        if let Some(problem) = received.problem {
            bail!("Orlog closed the stream: {problem}");
        }
        for Acknowledgement { job, status } in received.results {
            if status != "accepted" {
                bail!("Orlog did not accept the result of job {job}: {status}");
            }
            // The result of the last step is stored, and with it the end of the saga.
            if let Some(order) = self.shipped.remove(job) {
                self.steps.report(order);
            }
        }
        for Job {
            id,
            claim,
            effect,
            correlation,
        } in received.jobs
        {
            let order = correlation
                .parse()
                .with_context(|| format!("unexpected order {correlation}"))?;
            let step = STEPS
                .iter()
                .position(|step| effect.strip_prefix("order.") == Some(step));
            let step = step.with_context(|| format!("no step for {effect}"))?;
            self.steps.execute(step, order);
            if step == STEPS.len() - 1 {
                self.shipped.insert(id.to_owned(), order);
            }
            self.reports.push(Report {
                job: id.to_owned(),
                claim: claim.to_owned(),
                result: "succeeded",
            });
        }
        Ok(())
    }
}
