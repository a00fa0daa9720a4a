//! Subjects: the addresses of messages, built and read so that no name can change a route.
//!
//! A subject of Orlog is `[tenant.<tenant>.]<kind>.<name>.<id>`; the default tenant has no prefix. Every name is one
//! token, percent-encoded reversibly, so `.`, `*`, `>`, spaces and all that is not ASCII cannot open, close or match a
//! token. Foreign subjects are accepted as they are: a token without `%XX` stands for itself.

mod filter;
mod token;

use std::fmt;

use orlog_model::TenantId;

use crate::Error;

pub use filter::{Filter, MAX_SUBJECT_BYTES, check_subject};
pub use token::{decode_token, encode_token};
pub(crate) use token::{escape, push_escape};

const TENANT: &str = "tenant";

/// What travels under a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An event of an aggregate: `aggregate.<type>.<id>`.
    #[default]
    Aggregate,
    /// A command to an effect worker: `effect.<effect>.<command id>`.
    Effect,
    /// A word to one saga instance: `workflow.<saga>.<correlation>`.
    Workflow,
    /// What became of an effect: `effect_result.<effect>.<command id>`.
    EffectResult,
    /// A fact about a saga instance: `workflow_event.<saga>.<correlation>`.
    WorkflowEvent,
    /// What could not be done, for people: `deadletter.<reason>.<letter id>`, `deadletter.effect.<sequence>`.
    DeadLetter,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Aggregate,
        Self::Effect,
        Self::Workflow,
        Self::EffectResult,
        Self::WorkflowEvent,
        Self::DeadLetter,
    ];

    /// The token that names it.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Kind::Aggregate => "aggregate",
            Kind::Effect => "effect",
            Kind::Workflow => "workflow",
            Kind::EffectResult => "effect_result",
            Kind::WorkflowEvent => "workflow_event",
            Kind::DeadLetter => "deadletter",
        }
    }

    fn of_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.token() == token)
    }
}

/// A subject, taken apart. `Display` puts it together again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Whose message it is.
    pub tenant: TenantId,
    /// What travels.
    pub kind: Kind,
    /// The aggregate type, the effect, the saga, or the reason of a dead letter.
    pub name: String,
    /// The aggregate id, the command id, the correlation id or the letter's id.
    pub id: String,
}

impl Subject {
    /// A subject from its parts.
    pub fn new(tenant: TenantId, kind: Kind, name: impl Into<String>, id: impl Into<String>) -> Self {
        Self { tenant, kind, name: name.into(), id: id.into() }
    }

    /// Reads a subject.
    ///
    /// # Errors
    /// When it is no valid subject, has another shape than `[tenant.<tenant>.]<kind>.<name>.<id>`, or a token is not
    /// percent-encoded UTF-8.
    pub fn parse(subject: &str) -> Result<Self, Error> {
        check_subject(subject)?;
        let refuse = |reason: String| Error::Subject { subject: subject.to_owned(), what: "subject", reason };
        let (tenant, rest) = split_tenant(subject).map_err(refuse)?;
        let mut tokens = rest.split('.');
        let (Some(kind), Some(name), Some(id), None) =
            (tokens.next(), tokens.next(), tokens.next(), tokens.next())
        else {
            return Err(refuse("it is not of the form [tenant.<tenant>.]<kind>.<name>.<id>".to_owned()));
        };
        let kind = Kind::of_token(kind).ok_or_else(|| refuse(format!("{kind:?} is no kind of message")))?;
        let name = decode_token(name).map_err(refuse)?.into_owned();
        let id = decode_token(id).map_err(refuse)?.into_owned();
        Ok(Self { tenant, kind, name, id })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_prefix(f, &self.tenant)?;
        write!(f, "{}.{}.{}", self.kind.token(), encode_token(&self.name), encode_token(&self.id))
    }
}

/// Whose messages travel under a subject: the tenant after `tenant.`, else the default tenant.
///
/// # Errors
/// When the tenant's token is malformed or no tenant id.
pub fn tenant_of(subject: &str) -> Result<TenantId, Error> {
    split_tenant(subject).map(|(tenant, _)| tenant).map_err(|reason| Error::Subject {
        subject: subject.to_owned(),
        what: "subject",
        reason,
    })
}

/// The filters for all messages of a kind, of one tenant or of all (the default tenant included), of one name or of all.
#[must_use]
pub fn filters(tenant: Option<&TenantId>, kind: Kind, name: Option<&str>) -> Vec<String> {
    let rest = match name {
        Some(name) => format!("{}.{}.*", kind.token(), encode_token(name)),
        None => format!("{}.>", kind.token()),
    };
    match tenant {
        Some(tenant) if tenant.as_str().is_empty() => vec![rest],
        Some(tenant) => vec![format!("{TENANT}.{}.{rest}", encode_token(tenant.as_str()))],
        None => vec![format!("{TENANT}.*.{rest}"), rest],
    }
}

fn write_prefix(f: &mut fmt::Formatter<'_>, tenant: &TenantId) -> fmt::Result {
    match tenant.as_str() {
        "" => Ok(()),
        tenant => write!(f, "{TENANT}.{}.", encode_token(tenant)),
    }
}

fn split_tenant(subject: &str) -> Result<(TenantId, &str), String> {
    let Some(rest) = subject.strip_prefix(TENANT).and_then(|rest| rest.strip_prefix('.')) else {
        return Ok((TenantId::default_tenant(), subject));
    };
    let (token, rest) = rest.split_once('.').ok_or("nothing follows the tenant")?;
    let tenant = TenantId::new(decode_token(token)?.as_ref()).map_err(|e| e.to_string())?;
    Ok((tenant, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tenant(text: &str) -> TenantId {
        TenantId::new(text).unwrap()
    }

    #[track_caller]
    fn check(subject: &Subject, text: &str) {
        assert_eq!(subject.to_string(), text);
        assert_eq!(&Subject::parse(text).unwrap(), subject);
    }

    #[test]
    fn builds_and_reads_every_kind() {
        check(
            &Subject::new(tenant("acme"), Kind::Aggregate, "order", "o-1"),
            "tenant.acme.aggregate.order.o-1",
        );
        check(&Subject::new(tenant(""), Kind::Effect, "payments.charge", "7"), "effect.payments%2Echarge.7");
        check(&Subject::new(tenant("ä*"), Kind::Workflow, "a b", ">"), "tenant.%C3%A4%2A.workflow.a%20b.%3E");
        check(&Subject::new(tenant(""), Kind::EffectResult, "x", ""), "effect_result.x.%");
        check(&Subject::new(tenant("t"), Kind::WorkflowEvent, "s", "c"), "tenant.t.workflow_event.s.c");
        check(
            &Subject::new(tenant("t"), Kind::DeadLetter, "undecodable", "7"),
            "tenant.t.deadletter.undecodable.7",
        );
    }

    #[test]
    fn refuses_other_shapes_and_says_why() {
        for (bad, why) in [
            ("tenant.acme", "nothing follows the tenant"),
            ("aggregate.order", "is not of the form"),
            ("aggregate.order.1.2", "is not of the form"),
            ("tenant.acme.gossip.a.b", "\"gossip\" is no kind of message"),
            ("aggregate.order.%2", "%"),
            ("aggregate..1", "empty token"),
        ] {
            let error = Subject::parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn filters_of_all_tenants_include_the_default_one() {
        let subjects = [Subject::new(tenant("a"), Kind::Effect, "x.y", "1"), {
            Subject::new(tenant(""), Kind::Effect, "x.y", "1")
        }];
        let all: Vec<_> = filters(None, Kind::Effect, Some("x.y"));
        for subject in subjects {
            assert!(all.iter().any(|f| Filter::parse(f).unwrap().matches(&subject.to_string())));
        }
        assert_eq!(filters(Some(&tenant("a")), Kind::Effect, None), ["tenant.a.effect.>"]);
        assert_eq!(filters(Some(&tenant("")), Kind::Workflow, None), ["workflow.>"]);
    }

    #[test]
    fn whose_a_subject_is() {
        assert_eq!(tenant_of("tenant.acme.whatever.it.is").unwrap(), tenant("acme"));
        assert_eq!(tenant_of("orders.placed").unwrap(), tenant(""));
        assert!(tenant_of("tenant.%00.a").is_err());
    }

    proptest! {
        #[test]
        fn any_names_survive_and_stay_one_token(
            t in "[^\\x00-\\x1f\\x7f-\\u{9f}]{0,16}", name in any::<String>(), id in any::<String>(), kind in 0usize..6,
        ) {
            prop_assume!(t.len() <= 64 && name.len() <= 256 && id.len() <= 256);
            let subject = Subject::new(tenant(&t), Kind::ALL[kind], name, id);
            let text = subject.to_string();
            prop_assert_eq!(Subject::parse(&text).unwrap(), subject);
            prop_assert_eq!(text.split('.').count(), if t.is_empty() { 3 } else { 5 });
        }

        #[test]
        fn reading_never_panics(text in any::<String>()) {
            if let Ok(subject) = Subject::parse(&text) {
                prop_assert_eq!(Subject::parse(&subject.to_string()).unwrap(), subject);
            }
        }
    }
}
