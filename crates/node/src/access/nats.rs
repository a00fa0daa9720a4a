//! Users of contexts on NATS: what each list permits on subjects and consumers.

use orlog_bus::nats::{ConsumerSpec, WORKFLOW_COMMANDS, WORKFLOW_EVENTS};
use orlog_bus::subject::{SubjectKind, encode_token, filters, result_filters};
use orlog_model::{EffectName, NodeName, TenantId};

use crate::config::node_subject;

/// Accounts of operators and nodes, as in docs/nats.md.
const NODE_ACCOUNTS: &str = include_str!("nats_accounts.conf");
/// Place of the subject of the node in the accounts.
const SUBJECT: &str = "{subject}";

/// User of the clients that belong to one list of a context.
struct User {
    list: &'static str,
    /// Subjects that it may publish to.
    publish: Vec<String>,
    consumers: Vec<ConsumerSpec>,
}

/// Returns the authorization of a NATS server: the accounts of the node, and one user for each list
/// of each context.
#[must_use]
pub fn authorization(node: &NodeName, contexts: &[TenantId], effects: &[EffectName]) -> String {
    let accounts = NODE_ACCOUNTS.replace(SUBJECT, &node_subject(node));
    let entries = |tenant| users(tenant, effects).map(|user| user.entry(tenant));
    let entries: String = contexts.iter().flat_map(entries).collect();
    format!("authorization {{\n  users: [\n{accounts}{entries}  ]\n}}\n")
}

impl User {
    /// Returns the user as an entry of the server configuration.
    fn entry(&self, tenant: &TenantId) -> String {
        let name = encode_token(tenant.as_str());
        let list = self.list;
        let variable = variable(tenant);
        let own = self.consumers.iter().flat_map(requests);
        let publish: Vec<_> = self.publish.iter().cloned().chain(own).collect();

        // With the default prefix `_INBOX`, each user could read the responses to all others.
        format!(
            "    {{ user: \"{name}-{list}\", password: ${variable}_{list}, permissions: \
             {{\n      publish: {publish:?}\n      \
             subscribe: [\"_INBOX_{name}-{list}.>\"]\n    }} }}\n"
        )
    }
}

/// Returns the consumers that the users of these contexts read from.
#[must_use]
pub fn consumers(contexts: &[TenantId], effects: &[EffectName]) -> Vec<ConsumerSpec> {
    let all = contexts
        .iter()
        .flat_map(|tenant| users(tenant, effects))
        .flat_map(|user| user.consumers);
    let mut consumers: Vec<ConsumerSpec> = Vec::new();
    for consumer in all {
        // Admins and executors of a context read jobs from the same consumers.
        if !consumers.contains(&consumer) {
            consumers.push(consumer);
        }
    }

    consumers
}

fn users(tenant: &TenantId, effects: &[EffectName]) -> [User; 3] {
    let token = encode_token(tenant.as_str());
    let of = |kind, name: Option<&str>| filters(Some(tenant), kind, name);
    let reading = |list: &str| ConsumerSpec {
        stream: WORKFLOW_EVENTS,
        name: format!("context-{token}-{list}"),
        filters: [
            of(SubjectKind::WorkflowEvent, None),
            result_filters(Some(tenant)),
        ]
        .concat(),
        acknowledges: false,
    };

    // One consumer for each effect, with acknowledgements: its workers share the jobs.
    let jobs = |effect: &EffectName| ConsumerSpec {
        stream: WORKFLOW_COMMANDS,
        name: format!("context-{token}-{}", encode_token(effect.as_str())),
        filters: of(SubjectKind::Effect, Some(effect.as_str())),
        acknowledges: true,
    };
    let jobs: Vec<_> = effects.iter().map(jobs).collect();
    let results: Vec<_> = effects
        .iter()
        .flat_map(|effect| of(SubjectKind::EffectResult, Some(effect.as_str())))
        .collect();

    // A worker looks for the result of an earlier delivery before it executes a command.
    // It also records the start of an attempt that must not be repeated.
    let starts = results.iter().map(|subject| format!("{subject}.started"));
    let published: Vec<_> = results.iter().cloned().chain(starts).collect();
    let look_ups = published
        .iter()
        .map(|subject| format!("$JS.API.DIRECT.GET.{WORKFLOW_EVENTS}.{subject}"));
    let executing: Vec<_> = look_ups.chain(published.iter().cloned()).collect();
    let created = [SubjectKind::WorkflowEvent, SubjectKind::Workflow]
        .into_iter()
        .flat_map(|kind| of(kind, None));
    let with_reading = |list, more: &[ConsumerSpec]| [&[reading(list)], more].concat();

    [
        User {
            list: "admins",
            publish: created.chain(executing.iter().cloned()).collect(),
            consumers: with_reading("admins", &jobs),
        },
        User {
            list: "readers",
            publish: Vec::new(),
            consumers: with_reading("readers", &[]),
        },
        User {
            list: "executors",
            publish: executing,
            consumers: jobs,
        },
    ]
}

/// Returns the subjects of the requests to a consumer.
fn requests(consumer: &ConsumerSpec) -> Vec<String> {
    let ConsumerSpec {
        stream,
        name,
        acknowledges,
        ..
    } = consumer;

    let mut subjects = vec![
        format!("$JS.API.CONSUMER.INFO.{stream}.{name}"),
        format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"),
    ];
    if *acknowledges {
        subjects.push(format!("$JS.ACK.{stream}.{name}.>"));
        // With `js_ack_fc_v2`, the default of nats-server 2.16: after the domain and a hash of the
        // account.
        subjects.push(format!("$JS.ACK.*.*.{stream}.{name}.>"));
    }

    subjects
}

/// Returns the name of the variables of a tenant: letters and digits, other bytes in hexadecimal.
fn variable(tenant: &TenantId) -> String {
    tenant
        .as_str()
        .bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("_{byte:02x}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tenants_are_distinct_and_safe_in_the_configuration() {
        let tenants =
            ["acme", "a.b", "a_b", "a-b", "A\"}"].map(|name| TenantId::new(name).unwrap());
        let names: std::collections::BTreeSet<_> = tenants.iter().map(variable).collect();
        assert_eq!(names.len(), tenants.len(), "{names:?}");
        let text = authorization(&NodeName::new("a").unwrap(), &tenants, &[]);
        assert!(
            text.contains("user: \"A%22%7D-readers\", password: $A_22_7d_readers"),
            "{text}"
        );
        assert_eq!(text.matches("{ user:").count(), 3 + 3 * tenants.len());
    }
}
