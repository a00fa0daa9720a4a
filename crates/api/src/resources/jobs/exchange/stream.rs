//! Stream of exchanges over a WebSocket: the worker sends messages without waiting for the
//! responses, and receives jobs as soon as they are available.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::HeaderMap;
use axum::response::Response;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use orlog_effect::worker::ClaimRequest;
use serde::Serialize;
use tokio::time::Instant;

use super::pending_claim::PendingClaim;
use super::{AppliedReports, ExchangeBody, ExchangeResponse, MAX_CREDIT, missing_effects};
use crate::resources::jobs::claimed_job::MAX_CLAIM;
use crate::resources::jobs::pods::{JobOrder, OfferedJob, Take, take_jobs};
use crate::resources::jobs::report::ReportSender;
use crate::server::admission::{AccessWatch, Admission};
use crate::server::connections::UpgradedConnection;
use crate::server::errors::invalid_parameter;
use crate::server::problem::Problem;
use crate::server::{body, forward};

/// Time after which the node closes a stream, so that the credentials of the worker are checked
/// again.
const MAX_AGE: Duration = Duration::from_mins(15);

/// Maximum number of messages whose results are not stored yet. The node reads no further ones
/// meanwhile.
const MAX_UNACKNOWLEDGED: usize = 16;

/// Bytes that a message may exceed the limit of a body, so that the worker receives a problem.
const EXCESS_BYTES: usize = 64 << 10;

/// Maximum wait for jobs, after which the stream looks for the job board again.
const CLAIM_WAIT: Duration = Duration::from_mins(1);

/// Open a stream of exchanges
///
/// A WebSocket whose text messages are `ExchangeBody` and `ExchangeResponse`. The node acknowledges
/// each message that contains reports, in order, and sends jobs as long as the worker has credit,
/// which each message increases. After an error it sends `{"problem": …}` and closes the stream.
#[utoipa::path(
    get,
    path = "/v1/work/exchange",
    tag = "work",
    responses((status = 101, description = "The stream is open"))
)]
pub(crate) async fn open(
    mut sender: ReportSender,
    headers: HeaderMap,
    admission: Option<Extension<Admission>>,
    connection: Option<Extension<UpgradedConnection>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let (Ok(upgrade), Some(Extension(connection))) = (upgrade, connection) else {
        let detail =
            "GET opens a stream and requires a WebSocket handshake; send a single exchange as POST";
        return Err(invalid_parameter("upgrade", detail));
    };

    let jobs = &sender.jobs;
    // A stream counts as a request that waits.
    let long_poll = jobs.request.begin_long_poll()?;
    let limit = usize::try_from(jobs.request.http().max_body_size).unwrap_or(usize::MAX);
    let limit = limit.saturating_add(EXCESS_BYTES);
    let admission = admission.map(|Extension(admission)| admission);
    let access = AccessWatch::new(sender.access.clone(), admission);

    // The signature of the handshake covers none of the messages that follow.
    sender.caller.key = None;
    let stream = WorkStream {
        sender,
        headers: Arc::new(headers),
        request: None,
        credit: 0,
        claim: PendingClaim::none(),
        unacknowledged: FuturesOrdered::new(),
    };

    Ok(upgrade
        .max_message_size(limit)
        .max_frame_size(limit)
        .on_upgrade(move |socket| async move {
            // The stream has no request in flight, so that its connection would count as idle and
            // could be closed for another one.
            connection.set_busy();
            stream.serve(socket, connection, access).await;
            // Moved into the task: the stream outlives the request that opens it.
            drop(long_poll);
        }))
}

/// Stream of one worker.
struct WorkStream {
    /// Sender of the messages, without a signature.
    sender: ReportSender,
    /// Headers of the handshake, with the credentials of the worker.
    headers: Arc<HeaderMap>,
    /// The last claim request of the worker.
    request: Option<ClaimRequest>,
    /// Number of jobs that the worker still accepts.
    credit: usize,
    /// Claim of jobs, which continues while messages are exchanged or wait for a slow worker: jobs
    /// that it has claimed must not be lost with it.
    claim: PendingClaim<ClaimedJobs>,
    /// Messages whose results are not stored yet.
    unacknowledged: FuturesOrdered<BoxFuture<'static, ExchangeResponse>>,
}

/// Result of a claim of a stream; none if its wait has ended.
type ClaimedJobs = Result<Vec<OfferedJob>, Problem>;

/// Next action of a stream.
enum Action {
    Send(Box<ExchangeResponse>),
    Ping,
    Wait,
}

/// End of a stream.
enum StreamEnd {
    /// The worker closed it, or the connection is lost.
    Closed,
    /// The node closes it for this reason; the worker can connect again.
    Leave(&'static str),
    /// The worker may not receive jobs any more.
    Revoked,
    /// The worker sent an invalid message.
    Rejected(Problem),
}

/// Last message to the worker after an error.
#[derive(Serialize)]
struct StreamProblem<'a> {
    problem: &'a Problem,
}

impl WorkStream {
    async fn serve(
        mut self,
        mut socket: WebSocket,
        connection: UpgradedConnection,
        access: AccessWatch,
    ) {
        match self.exchange(&mut socket, connection, access).await {
            StreamEnd::Closed => {}
            StreamEnd::Leave(reason) => {
                self.send_last_jobs(&mut socket).await;
                close(&mut socket, close_code::AWAY, reason).await;
            }
            StreamEnd::Revoked => {
                // Before the close, which a slow worker delays: its claim must take no further jobs.
                self.claim = PendingClaim::none();
                let reason = "the access to the context was revoked";
                close(&mut socket, close_code::AWAY, reason).await;
            }
            StreamEnd::Rejected(problem) => {
                self.send_last_jobs(&mut socket).await;
                let message = serde_json::to_string(&StreamProblem { problem: &problem });
                let message = Message::text(message.expect("a problem serializes to JSON"));
                // An error means that the connection is lost.
                if socket.send(message).await.is_ok() {
                    close(&mut socket, close_code::POLICY, problem.code().as_str()).await;
                }
            }
        }
    }

    /// Exchanges messages until the stream ends.
    async fn exchange(
        &mut self,
        socket: &mut WebSocket,
        mut connection: UpgradedConnection,
        mut access: AccessWatch,
    ) -> StreamEnd {
        let max_silence = self.sender.jobs.request.http().request_timeout;
        let end = Instant::now() + MAX_AGE;
        let mut received_at = Instant::now();
        let mut is_pinged = false;

        // In each round, because the jobs of a tenant move with its shard.
        while forward::is_local(&self.sender.jobs.cluster, &self.sender.tenant) {
            // A ping after half of the time leaves the other half for its response.
            let silent_until = received_at
                + if is_pinged {
                    max_silence
                } else {
                    max_silence / 2
                };

            self.claim_if_accepted();
            let action = tokio::select! {
                () = connection.must_close() => return StreamEnd::Leave("the node is stopping"),
                () = self.sender.jobs.request.drained() => return StreamEnd::Leave("the node is \
                                                                               drained"),
                () = access.revoked() => return StreamEnd::Revoked,
                () = tokio::time::sleep_until(end) => return StreamEnd::Leave("maximum age of a \
                                                                               stream"),
                () = tokio::time::sleep_until(silent_until) => {
                    if is_pinged {
                        return StreamEnd::Leave("no response to a ping");
                    }
                    is_pinged = true;
                    Ok(Action::Ping)
                }
                // Beyond the limit, messages stay in the connection, so that the worker cannot send
                // faster than results are stored.
                received = socket.recv(), if self.unacknowledged.len() < MAX_UNACKNOWLEDGED => {
                    (received_at, is_pinged) = (Instant::now(), false);
                    match received {
                        Some(Ok(Message::Text(text))) => self.receive(text.as_bytes()).await,
                        Some(Ok(Message::Binary(bytes))) => self.receive(&bytes).await,
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(Action::Wait),
                        Some(Ok(Message::Close(_)) | Err(_)) | None => return StreamEnd::Closed,
                    }
                }
                // In the order of the messages, also if a later one is stored first:
                // acknowledgements name no message.
                Some(response) = self.unacknowledged.next() => Ok(Action::Send(Box::new(response))),
                jobs = self.claim.next() => self.take_credit(jobs),
            };

            if let Err(end) = act(socket, action).await {
                return end;
            }
        }

        StreamEnd::Leave("the shard of the tenant moved to another pod")
    }

    /// Starts to claim jobs if the worker accepts some, unless a claim is pending.
    fn claim_if_accepted(&mut self) {
        if self.credit == 0 || self.claim.is_pending() {
            return;
        }
        // A message with credit is rejected unless the worker has stated its effects.
        let Some(request) = self.request.clone() else {
            return;
        };

        let jobs = self.sender.jobs.clone();
        let headers = Arc::clone(&self.headers);
        let limit = self.credit.min(MAX_CLAIM);
        self.claim.start(async move |interrupt| {
            let order = JobOrder {
                request: &request,
                take: Take::Claim,
                limit,
                wait: CLAIM_WAIT,
                headers: &headers,
                interrupt: &interrupt,
            };
            take_jobs(&jobs, &order).await
        });
    }

    /// Returns the action for the result of a claim, whose jobs use the credit of the worker.
    fn take_credit(&mut self, claimed: ClaimedJobs) -> Result<Action, Problem> {
        let jobs = claimed?;
        if jobs.is_empty() {
            return Ok(Action::Wait);
        }

        // No underflow: a claim returns at most the credit that it was given, and messages only add
        // credit.
        self.credit -= jobs.len();
        Ok(Action::Send(Box::new(ExchangeResponse {
            jobs,
            ..ExchangeResponse::default()
        })))
    }

    /// Sends the jobs of a claim that is pending at the end of the stream: the worker would learn
    /// of them only after their claims have expired.
    async fn send_last_jobs(&mut self, socket: &mut WebSocket) {
        let claimed = self.claim.end().await.unwrap_or(Ok(Vec::new()));
        let action = self.take_credit(claimed);
        // An error of the claim is not the reason for the end, and a lost connection is its own.
        drop(act(socket, action).await);
    }

    /// Applies a message of the worker.
    async fn receive(&mut self, bytes: &[u8]) -> Result<Action, Problem> {
        let jobs = &self.sender.jobs;
        let caller = self.sender.jobs.request.scope.caller.as_ref();
        // Each message counts as a request, so that a stream does not bypass the quotas of its
        // caller.
        let _request = jobs.request.begin_message()?;
        let limit = jobs.request.http().max_body_size;
        if bytes.len() as u64 > limit {
            return Err(body::too_large(
                &format!("the message has {} bytes", bytes.len()),
                limit,
            ));
        }

        let mut received = jobs.request.bodies().receive(caller);
        received.add(bytes)?;
        let body::ObjectOf(message) = jobs
            .request
            .bodies()
            .parse(
                &received.finish(),
                body::parse::<body::ObjectOf<ExchangeBody>>,
            )
            .await?;
        message.check_limits()?;

        let accepts_more = message.credit > 0 || message.effects.is_some();
        let request = message
            .claim_request(jobs, &self.sender.tenant)?
            // Taken although the message can still be rejected: a rejection ends the stream.
            .or_else(|| self.request.take());
        let credit = self.credit + message.credit;
        if credit > MAX_CREDIT {
            return Err(invalid_parameter(
                "credit",
                format!("at most {MAX_CREDIT} in total"),
            ));
        }
        if credit > 0 && request.is_none() {
            return Err(missing_effects());
        }

        self.request = request;
        self.credit = credit;
        if accepts_more {
            // The next claim has the new credit and the new effects.
            self.claim.interrupt();
        }

        let applied = AppliedReports::apply(&self.sender, &self.headers, message).await;
        // A message without reports has no response: workers count one for each message with
        // reports.
        if !applied.is_empty() {
            let jobs = jobs.clone();
            let headers = self.headers.clone();
            self.unacknowledged.push_back(Box::pin(async move {
                applied.acknowledge(&jobs, &headers).await
            }));
        }

        Ok(Action::Wait)
    }
}

async fn act(socket: &mut WebSocket, action: Result<Action, Problem>) -> Result<(), StreamEnd> {
    let message = match action.map_err(StreamEnd::Rejected)? {
        Action::Wait => return Ok(()),
        Action::Ping => Message::Ping(axum::body::Bytes::new()),
        Action::Send(response) => {
            Message::text(serde_json::to_string(&response).expect("a response serializes to JSON"))
        }
    };
    socket.send(message).await.map_err(|_| StreamEnd::Closed)
}

async fn close(socket: &mut WebSocket, code: u16, reason: &'static str) {
    let frame = CloseFrame {
        code,
        reason: reason.into(),
    };
    // An error means that the connection is lost.
    drop(socket.send(Message::Close(Some(frame))).await);
}
