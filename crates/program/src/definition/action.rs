//! Decoder of actions: the field that names the kind determines the other allowed fields.

use std::collections::BTreeMap;

use orlog_model::EffectName;

use crate::diagnostic::RawDiagnostic;
use crate::language::{Codec, Decoder, FieldSchema, Fields, MapSchema, ValueSchema, join_path};
use crate::steps::{Action, ActionSchema, EffectAction, KINDS};
use crate::yaml::tree::{Key, Node};

/// Additional fields of the action of a step: none.
const ACTION: MapSchema = MapSchema {
    name: "action",
    fields: &[],
};

/// Action of a step or of a handler.
pub(super) struct AnyAction;

impl Codec for AnyAction {
    type Value = Action;
    const SCHEMA: ValueSchema = ValueSchema::Action(&ACTION);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Action> {
        decode_action(decoder, node, path, &ACTION).0
    }

    fn placeholder(_: &str) -> Option<Action> {
        Some(unread_action())
    }
}

/// Returns the placeholder of an action that cannot be decoded.
pub(super) fn unread_action() -> Action {
    let name = EffectName::new("unread").expect("the placeholder is a valid name");
    Action::Effect(EffectAction::new(name))
}

/// Decodes an action and returns all fields of its map: its own and those of `beside`.
pub(super) fn decode_action<'n>(
    decoder: &mut Decoder<'_>,
    node: &'n Node,
    path: &str,
    beside: &MapSchema,
) -> (Option<Action>, Fields<'n>) {
    let mut fields = Fields {
        path: path.to_owned(),
        known: BTreeMap::new(),
        is_map: false,
    };

    let Some(entries) = decoder.entries(node, path, "a map such as { effect: … }") else {
        return (None, fields);
    };

    // The kind is needed first: it decides which of the other fields are allowed.
    fields.is_map = true;
    let kind = kind_of(decoder, entries, path);
    for (key, node) in entries {
        if fits(decoder, &key.text, kind.as_ref(), beside, path) {
            fields.known.insert(&key.text, node);
        }
    }

    (
        kind.and_then(|kind| (kind.decode)(decoder, &fields)),
        fields,
    )
}

/// Returns the one kind that the map names.
fn kind_of(decoder: &mut Decoder<'_>, entries: &[(Key, Node)], path: &str) -> Option<ActionSchema> {
    let mut kinds = KINDS
        .iter()
        .copied()
        .filter(|kind| entries.iter().any(|(key, _)| key.text == kind.name()));
    let Some(kind) = kinds.next() else {
        let all: Vec<_> = KINDS
            .iter()
            .map(|known| format!("`{}`", known.name()))
            .collect();
        let finding = RawDiagnostic::new(path, "the action names no kind");
        decoder.report(finding.with_suggestion(format!("name one of {}", all.join(", "))));
        return None;
    };

    // A field of one kind can have the name of another one: `event` of a child saga is no second
    // kind.
    let second = kinds.find(|other| !has(kind.fields, other.name()));
    let Some(second) = second else {
        return Some(kind);
    };

    let message = format!(
        "`{}` is already present; an action has one kind",
        kind.name()
    );
    decoder.report(RawDiagnostic::new(join_path(path, second.name()), message).at_key());
    None
}

fn has(fields: &[FieldSchema], name: &str) -> bool {
    fields.iter().any(|field| field.name == name)
}

/// Returns whether a field is allowed with this kind; reports it if not.
fn fits(
    decoder: &mut Decoder<'_>,
    name: &str,
    kind: Option<&ActionSchema>,
    beside: &MapSchema,
    path: &str,
) -> bool {
    let of_a_kind = KINDS.iter().any(|kind| has(kind.fields, name));
    let allowed: Vec<_> = match kind {
        Some(kind) => kind
            .fields
            .iter()
            .chain(beside.fields)
            .map(|field| field.name)
            .collect(),
        None => KINDS
            .iter()
            .flat_map(|kind| kind.fields)
            .chain(beside.fields)
            .map(|field| field.name)
            .collect(),
    };

    match kind {
        Some(_) if allowed.contains(&name) => return true,
        Some(kind) if of_a_kind => decoder.report(field_of_other_kind(name, kind, path)),
        // Without a kind, a field of any kind is not reported: the missing kind is the only error.
        None if allowed.contains(&name) => {}
        Some(_) | None => decoder.unknown(path, name, &allowed),
    }
    false
}

/// Returns the diagnostic of a field of another kind of action.
fn field_of_other_kind(name: &str, kind: &ActionSchema, path: &str) -> RawDiagnostic {
    let label = kind.label;
    let message = match name {
        "id" => format!("{label} has no aggregate id"),
        _ => format!("{label} has no `{name}`"),
    };
    let suggestion =
        (name == "id" && has(kind.fields, "data")).then(|| "put it into `data`".to_owned());
    RawDiagnostic::new(join_path(path, name), message)
        .at_key()
        .with_optional_suggestion(suggestion)
}
