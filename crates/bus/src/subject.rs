//! Subjects: addresses of messages, encoded so that no name can change the routing.
//!
//! A subject of Orlog is `[tenant.<tenant>.]<kind>.<name>.<id>`; the default tenant has no prefix.
//! Every name is one token with reversible percent-encoding, so `.`, `*`, `>`, spaces and non-ASCII
//! characters cannot delimit or match a token. Foreign subjects are accepted unchanged: a token
//! without `%XX` is literal.

mod filter;
mod token;

use std::fmt;

use orlog_model::TenantId;

use crate::Error;

pub use filter::{Filter, MAX_SUBJECT_BYTES, check_subject};
pub use token::{decode_token, encode_token};
pub(crate) use token::{push_token, token_length};

const TENANT: &str = "tenant";
/// Last token of the record that an attempt of an effect started.
const STARTED: &str = ".started";

/// Kind of message under a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubjectKind {
    /// Event of an aggregate: `aggregate.<type>.<id>`.
    #[default]
    Aggregate,
    /// Command to an effect worker: `effect.<effect>.<command id>`.
    Effect,
    /// Message to one saga instance: `workflow.<saga>.<correlation>`.
    Workflow,
    /// Result of an effect: `effect_result.<effect>.<command id>`.
    EffectResult,
    /// Fact about a saga instance: `workflow_event.<saga>.<correlation>`.
    WorkflowEvent,
    /// Dead letter for operators: `deadletter.<reason>.<letter id>`,
    /// `deadletter.effect.<sequence>`.
    DeadLetter,
}

impl SubjectKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Aggregate,
        Self::Effect,
        Self::Workflow,
        Self::EffectResult,
        Self::WorkflowEvent,
        Self::DeadLetter,
    ];

    /// Returns the token of the kind.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            SubjectKind::Aggregate => "aggregate",
            SubjectKind::Effect => "effect",
            SubjectKind::Workflow => "workflow",
            SubjectKind::EffectResult => "effect_result",
            SubjectKind::WorkflowEvent => "workflow_event",
            SubjectKind::DeadLetter => "deadletter",
        }
    }

    fn of_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.token() == token)
    }
}

/// Parsed subject. `Display` formats it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Tenant of the message.
    pub tenant: TenantId,
    /// Kind of the message.
    pub kind: SubjectKind,
    /// Aggregate type, effect, saga, or reason of a dead letter.
    pub name: String,
    /// Aggregate id, command id, correlation id, or dead letter id.
    pub id: String,
}

impl Subject {
    /// Creates a subject from its parts.
    pub fn new(
        tenant: TenantId,
        kind: SubjectKind,
        name: impl Into<String>,
        id: impl Into<String>,
    ) -> Self {
        Self {
            tenant,
            kind,
            name: name.into(),
            id: id.into(),
        }
    }

    /// Parses a subject.
    ///
    /// # Errors
    /// If it is not a valid subject, does not have the form `[tenant.<tenant>.]<kind>.<name>.<id>`,
    /// or has a token that is not percent-encoded UTF-8.
    pub fn parse(subject: &str) -> Result<Self, Error> {
        check_subject(subject)?;
        let invalid = |reason: String| Error::InvalidSubject {
            subject: subject.to_owned(),
            kind: "subject",
            reason,
        };

        let (tenant, rest) = split_tenant(subject).map_err(invalid)?;
        let mut tokens = rest.split('.');
        // The encoding leaves no dot in a name, so further tokens mean a foreign subject.
        let (Some(kind), Some(name), Some(id), None) =
            (tokens.next(), tokens.next(), tokens.next(), tokens.next())
        else {
            return Err(invalid(
                "it is not of the form [tenant.<tenant>.]<kind>.<name>.<id>".to_owned(),
            ));
        };

        let kind = SubjectKind::of_token(kind)
            .ok_or_else(|| invalid(format!("{kind:?} is not a valid kind of message")))?;
        let name = decode_token(name).map_err(invalid)?.into_owned();
        let id = decode_token(id).map_err(invalid)?.into_owned();

        Ok(Self {
            tenant,
            kind,
            name,
            id,
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_subject(
            &self.tenant,
            self.kind,
            &self.name,
            &self.id,
        ))
    }
}

/// Returns the text of the subject with these parts, in one allocation.
#[must_use]
pub fn format_subject(tenant: &TenantId, kind: SubjectKind, name: &str, id: &str) -> String {
    let tenant = tenant.as_str();
    let kind = kind.token();
    let tokens: usize = [tenant, name, id].into_iter().map(token_length).sum();
    let mut subject = String::with_capacity(TENANT.len() + kind.len() + tokens + "....".len());

    if !tenant.is_empty() {
        subject.push_str(TENANT);
        subject.push('.');
        push_token(&mut subject, tenant);
        subject.push('.');
    }

    subject.push_str(kind);
    for token in [name, id] {
        subject.push('.');
        push_token(&mut subject, token);
    }
    subject
}

/// Returns the subject of the record that an attempt of an effect started, beside the subject of
/// its result.
#[must_use]
pub(crate) fn start_subject(result: &str) -> String {
    format!("{result}{STARTED}")
}

/// Returns the subject of the result beside a record of a start; `None` for other subjects.
pub(crate) fn parse_start(subject: &str) -> Option<Subject> {
    let result = Subject::parse(subject.strip_suffix(STARTED)?).ok()?;
    (result.kind == SubjectKind::EffectResult).then_some(result)
}

/// Returns the tenant of a subject: the tenant after `tenant.`, else the default tenant.
///
/// # Errors
/// If the token of the tenant is malformed or not a valid tenant id.
pub fn tenant_of(subject: &str) -> Result<TenantId, Error> {
    split_tenant(subject)
        .map(|(tenant, _)| tenant)
        .map_err(|reason| Error::InvalidSubject {
            subject: subject.to_owned(),
            kind: "subject",
            reason,
        })
}

/// Returns whether a subject is that of a fact of a saga. Does not validate it.
#[must_use]
pub fn is_fact(subject: &str) -> bool {
    let mut tokens = subject.splitn(4, '.');
    let first = tokens.next();
    let kind = if first == Some(TENANT) {
        tokens.nth(1)
    } else {
        first
    };
    kind == Some(SubjectKind::WorkflowEvent.token())
}

/// Returns the encoded tenant of a subject; empty for the default tenant. Does not validate it.
pub(crate) fn tenant_token(subject: &str) -> &str {
    let mut tokens = subject.splitn(3, '.');
    if tokens.next() == Some(TENANT) {
        tokens.next().unwrap_or_default()
    } else {
        ""
    }
}

/// Returns the filters for all messages of a kind: of one tenant or all tenants (including the
/// default tenant), of one name or all names.
#[must_use]
pub fn filters(tenant: Option<&TenantId>, kind: SubjectKind, name: Option<&str>) -> Vec<String> {
    let rest = match name {
        Some(name) => format!("{}.{}.*", kind.token(), encode_token(name)),
        None => format!("{}.>", kind.token()),
    };
    match tenant {
        Some(tenant) if tenant.as_str().is_empty() => vec![rest],
        Some(tenant) => vec![format!("{TENANT}.{}.{rest}", encode_token(tenant.as_str()))],
        // The default tenant has no prefix, so one filter cannot match all tenants.
        None => vec![format!("{TENANT}.*.{rest}"), rest],
    }
}

/// Returns the filters for the results of all effects: of one tenant, or of all tenants. Records of
/// starts do not match.
#[must_use]
pub fn result_filters(tenant: Option<&TenantId>) -> Vec<String> {
    filters(tenant, SubjectKind::EffectResult, None)
        .into_iter()
        .map(|filter| match filter.strip_suffix('>') {
            Some(prefix) => format!("{prefix}*.*"),
            None => filter,
        })
        .collect()
}

fn split_tenant(subject: &str) -> Result<(TenantId, &str), String> {
    let Some(rest) = subject
        .strip_prefix(TENANT)
        .and_then(|rest| rest.strip_prefix('.'))
    else {
        return Ok((TenantId::default_tenant(), subject));
    };

    let (token, rest) = rest
        .split_once('.')
        .ok_or("tokens are missing after the tenant")?;
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
    fn subjects_of_every_kind_round_trip() {
        check(
            &Subject::new(tenant("acme"), SubjectKind::Aggregate, "order", "o-1"),
            "tenant.acme.aggregate.order.o-1",
        );
        check(
            &Subject::new(tenant(""), SubjectKind::Effect, "payments.charge", "7"),
            "effect.payments%2Echarge.7",
        );
        check(
            &Subject::new(tenant("ä*"), SubjectKind::Workflow, "a b", ">"),
            "tenant.%C3%A4%2A.workflow.a%20b.%3E",
        );
        check(
            &Subject::new(tenant(""), SubjectKind::EffectResult, "x", ""),
            "effect_result.x.%",
        );
        assert!(is_fact("tenant.t.workflow_event.s.c") && is_fact("workflow_event.s.c"));
        assert!(
            !is_fact("tenant.workflow_event.aggregate.s.c")
                && !is_fact("aggregate.workflow_event.c")
        );
        check(
            &Subject::new(tenant("t"), SubjectKind::WorkflowEvent, "s", "c"),
            "tenant.t.workflow_event.s.c",
        );
        check(
            &Subject::new(tenant("t"), SubjectKind::DeadLetter, "undecodable", "7"),
            "tenant.t.deadletter.undecodable.7",
        );
    }

    #[test]
    fn rejects_other_shapes_with_a_reason() {
        for (invalid, expected) in [
            ("tenant.acme", "tokens are missing after the tenant"),
            ("aggregate.order", "is not of the form"),
            ("aggregate.order.1.2", "is not of the form"),
            (
                "tenant.acme.gossip.a.b",
                "\"gossip\" is not a valid kind of message",
            ),
            ("aggregate.order.%2", "%"),
            ("aggregate..1", "empty token"),
        ] {
            let error = Subject::parse(invalid).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn filters_of_all_tenants_include_the_default_one() {
        let subjects = [
            Subject::new(tenant("a"), SubjectKind::Effect, "x.y", "1"),
            { Subject::new(tenant(""), SubjectKind::Effect, "x.y", "1") },
        ];
        let all: Vec<_> = filters(None, SubjectKind::Effect, Some("x.y"));
        for subject in subjects {
            assert!(
                all.iter()
                    .any(|f| Filter::parse(f).unwrap().matches(&subject.to_string()))
            );
        }
        assert_eq!(
            filters(Some(&tenant("a")), SubjectKind::Effect, None),
            ["tenant.a.effect.>"]
        );
        assert_eq!(
            filters(Some(&tenant("")), SubjectKind::Workflow, None),
            ["workflow.>"]
        );
    }

    #[test]
    fn records_of_starts_are_no_results() {
        let result = Subject::new(tenant("a"), SubjectKind::EffectResult, "x.y", "1");
        let start = start_subject(&result.to_string());
        assert_eq!(start, "tenant.a.effect_result.x%2Ey.1.started");
        assert_eq!(parse_start(&start), Some(result.clone()));
        assert!(Subject::parse(&start).is_err());

        let is_read = |subject: &str| {
            let filters = result_filters(None);
            let mut parsed = filters.iter().map(|filter| Filter::parse(filter).unwrap());
            parsed.any(|filter| filter.matches(subject))
        };
        assert!(is_read(&result.to_string()) && !is_read(&start));
        assert_eq!(
            parse_start("effect.x.1.started"),
            None,
            "the subject of a command has no record"
        );
    }

    #[test]
    fn subject_tenant_is_extracted() {
        assert_eq!(
            tenant_of("tenant.acme.whatever.it.is").unwrap(),
            tenant("acme")
        );
        assert_eq!(tenant_of("orders.placed").unwrap(), tenant(""));
        assert!(tenant_of("tenant.%00.a").is_err());
    }

    proptest! {
        #[test]
        fn names_round_trip_as_one_token(
            t in "[^\\x00-\\x1f\\x7f-\\u{9f}]{0,16}", name in any::<String>(), id in any::<String>(), kind in 0usize..6,
        ) {
            prop_assume!(t.len() <= 64 && name.len() <= 256 && id.len() <= 256);
            let subject = Subject::new(tenant(&t), SubjectKind::ALL[kind], name, id);
            let text = subject.to_string();
            prop_assert_eq!(Subject::parse(&text).unwrap(), subject);
            prop_assert_eq!(text.split('.').count(), if t.is_empty() { 3 } else { 5 });
        }

        #[test]
        fn parsing_never_panics(text in any::<String>()) {
            if let Ok(subject) = Subject::parse(&text) {
                prop_assert_eq!(Subject::parse(&subject.to_string()).unwrap(), subject);
            }
        }
    }
}
