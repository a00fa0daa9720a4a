//! Fields of the event that an expression reads.

use cel::common::ast::{Expr, IdedExpr};

use super::ast::children;
use super::check::{self, NameResolution};
use super::functions::environment;
use super::root::Root;

/// Returns the fields after `event` of each access in an expression, for example `[customer,
/// email]`. An optional access (`event.?email`), and a field that the expression tests with `has`,
/// are not included: they may be absent.
pub(crate) fn event_fields(source: &str, element: Option<&str>) -> Vec<Vec<String>> {
    let names = Root::ALL.map(Root::name);
    let names: Vec<_> = names.into_iter().chain(element).chain(["index"]).collect();

    // An invalid expression is reported by the compiler.
    let Ok(parsed) = check::parse(environment(), source, NameResolution::Free(&names)) else {
        return Vec::new();
    };

    let mut read = Vec::new();
    let mut tested = Vec::new();
    collect(&parsed.expression, &mut read, &mut tested);
    // A field that `has` tests may be absent, and so may every field below it.
    read.retain(|fields: &Vec<String>| {
        !tested
            .iter()
            .any(|tested: &Vec<String>| fields.starts_with(tested))
    });

    read.sort();
    read.dedup();
    read
}

fn collect(node: &IdedExpr, read: &mut Vec<Vec<String>>, tested: &mut Vec<Vec<String>>) {
    let mut fields = Vec::new();
    let mut is_test = false;
    let mut at = node;
    while let Expr::Select(select) = &at.expr {
        is_test |= select.test;
        fields.push(select.field.clone());
        at = &select.operand;
    }

    match &at.expr {
        Expr::Ident(name) if name == Root::Event.name() && !fields.is_empty() => {
            fields.reverse();
            if is_test {
                tested.push(fields);
            } else {
                read.push(fields);
            }
        }
        _ => children(at)
            .into_iter()
            .for_each(|child| collect(child, read, tested)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(source: &str, expected: &[&str]) {
        let found: Vec<_> = event_fields(source, Some("item"))
            .iter()
            .map(|fields| fields.join("."))
            .collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn accesses_of_the_event_are_collected() {
        reads("event.total", &["total"]);
        reads(
            "event.customer.email + string(event.total) + vars.event",
            &["customer.email", "total"],
        );
        reads(
            "event.items.map(i, i.sku + event.shop).size()",
            &["items", "shop"],
        );
        reads("'event.text' + key.correlation + item.name", &[]);
        reads("event", &[]);
        reads("event.a.?b.orValue(1) + event.?c.orValue(2)", &["a"]);
        reads(
            "has(event.note.text) ? event.note.text + event.id : ''",
            &["id"],
        );
    }
}
