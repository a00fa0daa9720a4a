//! Fields of a root, such as `event` or `vars`, that an expression reads.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

use super::ast::children;
use super::check::{self, NameResolution};
use super::functions::{EQUAL, IN, environment};
use super::root::{EVENTS, INDEX, ROUND, Root};

/// What tests that a field has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldTest {
    /// `has(event.a)` or `'a' in event`. A comparison of an absent field with null has no value.
    Presence,
    /// A comparison with null. A variable always exists, but may be null: only a test of its fields
    /// says something.
    Null,
}

/// Returns the fields after a root of each access in an expression, for example `[customer, email]`
/// of `event.customer.email`. An optional access (`event.?email`), and a field that the expression
/// tests, are not included: they may be absent.
pub(crate) fn untested_fields(
    source: &str,
    element: Option<&str>,
    root: Root,
    test: FieldTest,
) -> Vec<Vec<String>> {
    let accesses = accesses(source, element, root);
    let tested = accesses.tested(test);
    let mut read = accesses.read;
    if test == FieldTest::Null {
        // The variable exists, so that the value is its null.
        let mut optional = accesses.optional;
        optional.retain(|fields| fields.len() == 1);
        read.append(&mut optional);
    }

    // A field that is tested may be absent, and so may every field below it.
    read.retain(|fields| !tested.iter().any(|tested| fields.starts_with(tested)));
    read.sort();
    read.dedup();
    read
}

/// Returns the fields after a root that an expression tests.
pub(crate) fn tested_fields(source: &str, root: Root, test: FieldTest) -> Vec<Vec<String>> {
    accesses(source, None, root).tested(test)
}

/// Returns the first field after a root of each access in an expression, also of tests.
pub(crate) fn first_fields(source: &str, element: Option<&str>, root: Root) -> Vec<String> {
    let accesses = accesses(source, element, root);
    let tested = accesses.present.into_iter().chain(accesses.optional);
    let all = accesses.read.into_iter().chain(tested);
    let mut fields: Vec<_> = all.filter_map(|fields| fields.into_iter().next()).collect();
    fields.sort();
    fields.dedup();
    fields
}

/// Access of an expression over free names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FreeRead {
    pub(crate) name: String,
    /// Fields after the name; empty if the expression reads the value as a whole.
    pub(crate) fields: Vec<String>,
}

/// Returns the accesses of an expression that starts with these names only.
pub(crate) fn free_reads(source: &str, names: &[&str]) -> Vec<FreeRead> {
    let mut reads = Vec::new();
    let Ok(parsed) = check::parse(environment(), source, NameResolution::Free(names)) else {
        return reads;
    };

    for name in names {
        let mut accesses = Accesses::default();
        accesses.add(&parsed.expression, name);
        let whole = accesses.is_whole.then(Vec::new);
        let tested = accesses.present.into_iter().chain(accesses.optional);
        let all = accesses.read.into_iter().chain(tested);
        reads.extend(all.chain(whole).map(|fields| FreeRead {
            name: (*name).to_owned(),
            fields,
        }));
    }
    reads.sort();
    reads.dedup();
    reads
}

/// Accesses of fields, each with the names after the root.
#[derive(Default)]
pub(super) struct Accesses {
    /// The expression reads the root without a field.
    is_whole: bool,
    read: Vec<Vec<String>>,
    /// Read with `.?`, so that an absent field has no error.
    optional: Vec<Vec<String>>,
    /// Tested with `has` or `in`.
    pub(super) present: Vec<Vec<String>>,
    pub(super) compared_with_null: Vec<Vec<String>>,
}

fn accesses(source: &str, element: Option<&str>, root: Root) -> Accesses {
    let names = Root::ALL.map(Root::name);
    let names = names.into_iter().chain([INDEX, ROUND, EVENTS]);
    let names: Vec<_> = names.chain(element).collect();

    // An invalid expression is reported by the compiler.
    let mut found = Accesses::default();
    if let Ok(parsed) = check::parse(environment(), source, NameResolution::Free(&names)) {
        found.add(&parsed.expression, root.name());
    }
    found
}

impl Accesses {
    /// Returns the accesses of a parsed expression.
    pub(super) fn of(expression: &IdedExpr, root: &str) -> Self {
        let mut found = Self::default();
        found.add(expression, root);
        found
    }

    /// Returns the fields that the expression tests.
    fn tested(&self, test: FieldTest) -> Vec<Vec<String>> {
        match test {
            FieldTest::Presence => self.present.clone(),
            FieldTest::Null => {
                let below = self.present.iter().filter(|fields| fields.len() > 1);
                below.chain(&self.compared_with_null).cloned().collect()
            }
        }
    }

    fn add(&mut self, node: &IdedExpr, root: &str) {
        if let Some(Chain {
            fields,
            optional_from: Some(from),
            is_computed: false,
        }) = Chain::of(node, root)
        {
            // The fields before the first optional one must exist.
            if from > 0 {
                self.read.push(fields[..from].to_vec());
            }
            self.optional.push(fields);
            return;
        }

        let mut fields = Vec::new();
        let mut is_test = false;
        let mut at = node;
        while let Some((operand, field)) = selection(at) {
            is_test |= matches!(&at.expr, Expr::Select(select) if select.test);
            fields.push(field.to_owned());
            at = operand;
        }

        match &at.expr {
            Expr::Ident(name) if name == root && fields.is_empty() => self.is_whole = true,
            Expr::Ident(name) if name == root => {
                fields.reverse();
                if is_test {
                    self.present.push(fields);
                } else {
                    self.read.push(fields);
                }
            }
            Expr::Call(call) => {
                self.add_test(call, root);
                for child in children(at) {
                    self.add(child, root);
                }
            }
            _ => {
                for child in children(at) {
                    self.add(child, root);
                }
            }
        }
    }

    /// Adds the test of `vars.a == null` or of `'a' in vars`.
    fn add_test(&mut self, call: &CallExpr, root: &str) {
        let [left, right] = call.args.as_slice() else {
            return;
        };

        match call.func_name.as_str() {
            operators::EQUALS | operators::NOT_EQUALS | EQUAL => {
                let compared = if is_null(right) {
                    left
                } else if is_null(left) {
                    right
                } else {
                    return;
                };
                self.compared_with_null.extend(chain(compared, root));
            }
            operators::IN | IN => {
                if let Some(field) = text(left)
                    && let Some(mut fields) = chain(right, root)
                {
                    fields.push(field.to_owned());
                    self.present.push(fields);
                }
            }
            _ => {}
        }
    }
}

/// Chain of fields after a root, with optional fields and computed indexes.
#[derive(Default)]
pub(super) struct Chain {
    /// Names up to the first computed index.
    pub(super) fields: Vec<String>,
    /// Number of fields before the first optional one.
    optional_from: Option<usize>,
    /// An index of the chain is no constant name.
    pub(super) is_computed: bool,
}

impl Chain {
    /// Returns the chain of a node; `None` if it is none, or begins with another name.
    pub(super) fn of(node: &IdedExpr, root: &str) -> Option<Self> {
        let mut is_optional = false;
        let (operand, field) = match &node.expr {
            Expr::Ident(name) => return (name == root).then(Self::default),
            Expr::Select(select) if !select.test => (&*select.operand, Some(select.field.as_str())),
            Expr::Call(call) => {
                is_optional = match call.func_name.as_str() {
                    operators::INDEX => false,
                    operators::OPT_INDEX | operators::OPT_SELECT => true,
                    _ => return None,
                };
                let [operand, index] = call.args.as_slice() else {
                    return None;
                };
                (operand, text(index))
            }
            _ => return None,
        };

        let mut chain = Self::of(operand, root)?;
        if is_optional {
            chain.optional_from.get_or_insert(chain.fields.len());
        }
        match field {
            Some(field) if !chain.is_computed => chain.fields.push(field.to_owned()),
            Some(_) | None => chain.is_computed = true,
        }
        Some(chain)
    }
}

/// Comparison of a value with a text: the names that lead to the value, and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextComparison {
    pub(crate) name: String,
    pub(crate) fields: Vec<String>,
    pub(crate) text: String,
}

/// Returns the comparisons of an expression over free names with constant texts: `==`, `!=` and
/// `in`.
pub(crate) fn text_comparisons(source: &str, names: &[&str]) -> Vec<TextComparison> {
    let mut found = Vec::new();
    if let Ok(parsed) = check::parse(environment(), source, NameResolution::Free(names)) {
        add_comparisons(&parsed.expression, names, &mut found);
    }
    found
}

fn add_comparisons(node: &IdedExpr, names: &[&str], found: &mut Vec<TextComparison>) {
    if let Expr::Call(call) = &node.expr
        && let [left, right] = call.args.as_slice()
    {
        match call.func_name.as_str() {
            operators::EQUALS | operators::NOT_EQUALS | EQUAL => {
                add_comparison(left, right, names, found);
                add_comparison(right, left, names, found);
            }
            operators::IN | IN => {
                if let Expr::List(list) = &right.expr {
                    for item in &list.elements {
                        add_comparison(left, item, names, found);
                    }
                }
            }
            _ => {}
        }
    }
    for child in children(node) {
        add_comparisons(child, names, found);
    }
}

fn add_comparison(
    value: &IdedExpr,
    constant: &IdedExpr,
    names: &[&str],
    found: &mut Vec<TextComparison>,
) {
    let Some(text) = text(constant) else { return };
    for name in names {
        if let Some(chain) = Chain::of(value, name).filter(|chain| !chain.is_computed) {
            found.push(TextComparison {
                name: (*name).to_owned(),
                fields: chain.fields,
                text: text.to_owned(),
            });
        }
    }
}

/// Returns operand and field of `operand.field` or `operand['field']`.
fn selection(node: &IdedExpr) -> Option<(&IdedExpr, &str)> {
    match &node.expr {
        Expr::Select(select) => Some((&select.operand, &select.field)),
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let [operand, index] = call.args.as_slice() else {
                return None;
            };
            Some((operand, text(index)?))
        }
        _ => None,
    }
}

pub(super) fn text(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

fn is_null(node: &IdedExpr) -> bool {
    matches!(node.expr, Expr::Literal(LiteralValue::Null))
}

/// Returns the fields of a plain chain after the root; empty for the root itself.
fn chain(node: &IdedExpr, root: &str) -> Option<Vec<String>> {
    if matches!(&node.expr, Expr::Ident(name) if name == root) {
        return Some(Vec::new());
    }
    let (operand, field) = selection(node)?;
    let mut fields = chain(operand, root)?;
    fields.push(field.to_owned());
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(source: &str, expected: &[&str]) {
        let found = untested_fields(source, Some("item"), Root::Event, FieldTest::Presence);
        let found: Vec<_> = found.iter().map(|fields| fields.join(".")).collect();
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

    #[test]
    fn tested_fields_are_omitted() {
        reads("'note' in event && event.note > event.total", &["total"]);
        reads("event.note != null && event.note > 1", &["note"]);

        let nullable = |source| untested_fields(source, None, Root::Vars, FieldTest::Null);
        assert!(nullable("vars.a == null ? '' : vars.a").is_empty());
        assert!(nullable("null != vars.a ? vars.a.b : round").is_empty());
        assert_eq!(nullable("vars.b != null ? vars.a : 1"), [["a"]]);

        // A variable exists before it has a value.
        assert_eq!(nullable("has(vars.a) ? vars.a : ''"), [["a"]]);
        assert_eq!(nullable("vars.?a.orValue('')"), [["a"]]);
        assert!(nullable("vars.?a.?b.orValue('')").is_empty());
        assert!(nullable("has(vars.a.b) ? vars.a.b : ''").is_empty());
    }

    #[test]
    fn free_names_are_read_by_field_or_as_a_whole() {
        let reads = free_reads(
            "steps['flight-a'].started && vars.size() > 0",
            &["steps", "vars"],
        );
        let read = |name: &str, fields: &[&str]| FreeRead {
            name: name.to_owned(),
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        };
        assert_eq!(
            reads,
            [read("steps", &["flight-a", "started"]), read("vars", &[])]
        );
    }

    #[test]
    fn comparisons_with_texts_are_found() {
        let found = text_comparisons(
            "status == 'completed' || steps.a.state in ['failed', 'x'] || 'b' != status",
            &["steps", "status"],
        );
        let found: Vec<_> = found
            .iter()
            .map(|found| format!("{} {} {}", found.name, found.fields.join("."), found.text))
            .collect();
        assert_eq!(
            found,
            [
                "status  completed",
                "steps a.state failed",
                "steps a.state x",
                "status  b"
            ]
        );
    }

    #[test]
    fn first_fields_include_tests() {
        let fields = |source| first_fields(source, None, Root::Failure);
        assert_eq!(
            fields("has(failure.kode) ? failure.code.size() : 1"),
            ["code", "kode"]
        );
    }
}
