//! Effects that others perform: their commands are offered to a queue, and what becomes of them is heard from there.
//!
//! One [`Desk`] a process hears all results live; those of commands that were not offered here are other processes' and are
//! passed over. A command of which nothing is heard for a while is looked for. While it waits its turn, so does whoever
//! offered it; where it is gone and there is no result, it is offered again. What lies under the subject of its result is
//! the result, whoever said it; so the deadline too is a word said there, and counts only if it is the first.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use dashmap::DashMap;
use orlog_bus::effect_queue::{self, EffectQueue, FirstWord, Look, Offered, Said};
use orlog_bus::{Error, Message};
use orlog_effect::{Attempt, Probe, Provider, Refusal, Reply};
use orlog_model::{Clock, Effect, Verdict, Work, WorkItem};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::telemetry::about;

/// Between two tries while the queue cannot be reached.
const PAUSE: Duration = Duration::from_millis(250);
/// The patience doubles with each offer, this often at most.
const MOST_DOUBLINGS: u32 = 6;

/// Where results come in.
pub struct Desk {
    queue: Arc<dyn EffectQueue>,
    clock: Arc<dyn Clock>,
    waiting: DashMap<Uuid, oneshot::Sender<Said>>,
    listener: std::sync::OnceLock<AbortHandle>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get() {
            listener.abort();
        }
    }
}

impl Desk {
    /// Listens to what is said on a queue from now on.
    ///
    /// # Errors
    /// When the queue cannot be reached.
    pub async fn open(queue: Arc<dyn EffectQueue>, clock: Arc<dyn Clock>) -> Result<Arc<Self>, Error> {
        let mut words = queue.listen().await?;
        let desk =
            Arc::new(Self { queue, clock, waiting: DashMap::new(), listener: std::sync::OnceLock::new() });
        let own: Weak<Self> = Arc::downgrade(&desk);
        let listener = tokio::spawn(async move {
            loop {
                let heard = words.next().await;
                let Some(desk) = own.upgrade() else { return };
                for word in &heard {
                    desk.hear(word);
                }
            }
        });
        // It is set here only.
        desk.listener.set(listener.abort_handle()).ok();
        Ok(desk)
    }

    /// Commands whose result is waited for.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn hear(&self, word: &Message) {
        let Some(id) = orlog_bus::subject::Subject::parse(&word.subject).ok().and_then(|s| s.id.parse().ok())
        else {
            return;
        };
        if let Some((_, waiting)) = self.waiting.remove(&id) {
            // An error means that nobody waits any more.
            waiting.send(read(word)).ok();
        }
    }

    /// A place to hear the result of a command, taken before it is offered. Taking it again leaves the earlier one without.
    fn expect(self: &Arc<Self>, id: Uuid) -> Expected {
        let (sender, heard) = oneshot::channel();
        self.waiting.insert(id, sender);
        Expected { desk: Arc::clone(self), id, heard }
    }

    /// What was said, asked for until there is an answer.
    async fn ask(&self, item: &WorkItem, effect: &Effect) -> Option<Said> {
        let subject = effect_queue::result_subject(item, &effect.name);
        let asked = persist(|| self.queue.word(&subject, Look::Sure)).await;
        asked.ok().flatten().map(|word| read(&word))
    }

    async fn offer(&self, item: &WorkItem, effect: &Effect, offer: u32) -> Result<Offered, Refusal> {
        let command = effect_queue::encode_command(item, effect, offer);
        let offered = persist(|| self.queue.offer(command.clone(), offer == 1)).await;
        offered.map_err(|error| Refusal::failed("not_offered", error.to_string()))
    }

    async fn is_waiting(&self, effect: &Effect, offered: &Offered) -> bool {
        persist(|| self.queue.is_waiting(&effect.name, offered)).await.unwrap_or(true)
    }

    async fn say(&self, item: &WorkItem, effect: &Effect, verdict: &Verdict) -> Option<Said> {
        let said = Said {
            command_id: item.id,
            verdict: verdict.clone(),
            attempts: 0,
            facts: Vec::new(),
            trace: None,
        };
        let word = effect_queue::encode_result(item, effect, &said, self.clock.now());
        match persist(|| self.queue.say(word.clone())).await {
            Ok(FirstWord::Theirs(word)) => Some(read(&word)),
            Ok(FirstWord::Ours) | Err(_) => None,
        }
    }
}

/// A place at the desk. Dropping it gives it up.
struct Expected {
    desk: Arc<Desk>,
    id: Uuid,
    heard: oneshot::Receiver<Said>,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.heard.close();
        // A place that was taken again is the other's.
        self.desk.waiting.remove_if(&self.id, |_, sender| sender.is_closed());
    }
}

/// Speaks to an upstream by way of the queue.
pub struct Dispatch {
    desk: Arc<Desk>,
    patience: Duration,
}

impl Dispatch {
    /// Looks for a command when nothing was heard of it for as long as the patience lasts.
    #[must_use]
    pub fn new(desk: Arc<Desk>, patience: Duration) -> Self {
        Self { desk, patience }
    }

    /// Waits for the result of an offer; `None` when the command is gone without one.
    async fn result(
        &self,
        item: &WorkItem,
        effect: &Effect,
        expected: &mut Expected,
        offered: (&Offered, u32),
    ) -> Option<Said> {
        let (offered, number) = offered;
        let patience = self.patience.saturating_mul(1 << (number - 1).min(MOST_DOUBLINGS));
        loop {
            match tokio::time::timeout(patience, &mut expected.heard).await {
                Ok(Ok(said)) => return Some(said),
                Ok(Err(_)) => *expected = self.desk.expect(item.id),
                Err(_) => {}
            }
            if let Some(said) = self.desk.ask(item, effect).await {
                return Some(said);
            }
            if !self.desk.is_waiting(effect, offered).await {
                return None;
            }
        }
    }
}

#[async_trait]
impl Provider for Dispatch {
    async fn perform(&self, item: &WorkItem, _: Attempt) -> Result<Reply, Refusal> {
        let Work::Effect(effect) = &item.work else {
            return Err(Refusal::failed("not_an_effect", format!("{} is no effect", item.work.label())));
        };
        let mut expected = self.desk.expect(item.id);
        let mut number = 1;
        loop {
            let offered = self.desk.offer(item, effect, number).await?;
            // One that lay there before may have its result before the listening began.
            if offered.found
                && let Some(said) = self.desk.ask(item, effect).await
            {
                return answer(said);
            }
            if let Some(said) = self.result(item, effect, &mut expected, (&offered, number)).await {
                return answer(said);
            }
            number += 1;
            let (id, effect, key) = (item.id, &effect.name, &item.instance);
            about!(WARN, key, item.trace.as_ref(), %id, %effect, number, "a command is gone without a result and is offered again");
        }
    }

    async fn probe(&self, item: &WorkItem) -> Probe {
        let Work::Effect(effect) = &item.work else { return Probe::Unknown };
        // Whether an attempt is in doubt is for whoever performs to say: here it is enough that there is no result.
        self.desk.ask(item, effect).await.map_or(Probe::NotDone, known)
    }

    async fn give_up(&self, item: &WorkItem, verdict: &Verdict) -> Probe {
        let Work::Effect(effect) = &item.work else { return Probe::Unknown };
        self.desk.say(item, effect, verdict).await.map_or(Probe::Unknown, known)
    }
}

fn known(said: Said) -> Probe {
    answer(said).map_or_else(Probe::Over, Probe::Done)
}

fn answer(said: Said) -> Result<Reply, Refusal> {
    orlog_effect::note(said.trace);
    let facts = said.facts;
    match said.verdict {
        Verdict::Succeeded { event, payload } => Ok(Reply { event, payload, facts }),
        Verdict::Accepted => Ok(Reply::default()),
        Verdict::Failed { event, failure, payload } => {
            Err(Refusal::Final { failure, event, payload, facts: facts.into() })
        }
        Verdict::TimedOut { failure } => Err(Refusal::GaveUp { failure }),
    }
}

/// A word that cannot be read lies there for ever all the same: the effect has failed.
fn read(word: &Message) -> Said {
    effect_queue::decode_result(word).unwrap_or_else(|error| Said {
        command_id: Uuid::nil(),
        verdict: Verdict::Failed {
            event: None,
            failure: orlog_model::Failure {
                code: "bad_result".to_owned(),
                message: format!("under {} lies no result: {error}", word.subject),
            },
            payload: serde_json::Value::Null,
        },
        attempts: 0,
        facts: Vec::new(),
        trace: None,
    })
}

/// Does it until the queue can be reached. What will not get better comes back.
async fn persist<T, F>(mut act: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match act().await {
            Err(Error::Unavailable(error)) => {
                tracing::debug!(error, "the queue of effects cannot be reached; trying again");
                tokio::time::sleep(PAUSE).await;
            }
            Err(Error::Full(error)) => {
                tracing::warn!(error, "the queue of effects is full; trying again");
                tokio::time::sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}
