//! Static checks of expressions: variables and functions exist, the cost is bounded, and the value
//! does not depend on the order of a hash map.

use cel::Env;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, SelectExpr, SourceInfo,
};
use cel::parser::ParseError;

use super::ast::{children, is_bind};
use super::cost::with_stack;
use super::event_data::ENVELOPE_FIELDS;
use super::names::{NAMES, NAMESPACES, TYPES};
use super::rewrite::rewrite;
use super::root::{INDEX, Root};
use crate::diagnostic::did_you_mean;
use crate::limits::{MAX_COMPREHENSIONS, MAX_EXPRESSION_BYTES};

/// Functions that users commonly try, and their replacements.
const MISSING: [(&str, &str); 2] = [
    (
        "now",
        "expressions cannot read a clock; use the time of an event",
    ),
    ("bind", "use `cel.bind(name, value, result)`"),
];

/// Variables that are available to an expression at its location.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    /// Available roots.
    pub(crate) roots: &'a [Root],
    /// Names under `vars`; `None` if they are unknown.
    pub(crate) vars: Option<&'a [String]>,
    /// Name of the element, if the location belongs to a `foreach` step.
    pub(crate) element: Option<&'a str>,
}

impl Scope<'_> {
    /// Returns the root of a name at this location.
    pub(super) fn root(&self, name: &str) -> Option<Root> {
        match self.element {
            Some(element) if element == name => Some(Root::Element),
            Some(_) if name == INDEX => Some(Root::Index),
            Some(_) | None => self
                .roots
                .iter()
                .copied()
                .find(|root| root.name() == name)
                .or(Root::named(name)),
        }
    }
}

/// Names with which an expression may start.
#[derive(Clone, Copy, Debug)]
pub(super) enum NameResolution<'a> {
    /// Names of a location in a definition.
    Scoped(&'a Scope<'a>),
    /// Exactly these names.
    Free(&'a [&'a str]),
}

/// Error of an invalid expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckError {
    /// Line and column, from 1.
    pub(crate) at: Option<(usize, usize)>,
    /// Description of the error.
    pub(crate) message: String,
    /// Suggested correction.
    pub(crate) suggestion: Option<String>,
}

/// An expression that passed all checks.
#[derive(Debug)]
pub(super) struct CheckedExpression {
    pub(super) expression: IdedExpr,
    /// The expression requires more stack than a caller may have.
    pub(super) deep: bool,
    /// The expression reads the attributes of the event.
    pub(super) reads_envelope: bool,
}

/// Parses and checks an expression, and rewrites `==`.
pub(super) fn parse(
    env: &Env,
    source: &str,
    known: NameResolution<'_>,
) -> Result<CheckedExpression, Vec<CheckError>> {
    if source.len() > MAX_EXPRESSION_BYTES {
        let message = format!(
            "the expression has {} bytes; the limit is {MAX_EXPRESSION_BYTES}",
            source.len()
        );
        return Err(rejected(message));
    }

    // Length and nesting are checked in the text, before the parser recurses over it.
    let nesting = nesting(source);
    if nesting > MAX_NESTING {
        let message = format!("the expression exceeds {MAX_NESTING} nesting levels");
        return Err(rejected(message));
    }

    // The parser recurses and uses much stack. A small expression fits the stack of the caller,
    // which saves a thread.
    let small = nesting <= SHALLOW && source.len() <= SHORT_BYTES;
    let (mut expression, info) = if small {
        read(env, source)
    } else {
        with_stack(|| read(env, source))
    }?;

    // A chain such as `a + b + c` has no brackets: only the tree shows its depth.
    if is_deeper(&expression, MAX_DEPTH) {
        let message = format!("the expression chains more than {MAX_DEPTH} operators or fields");
        return Err(rejected(message));
    }

    let mut walk = Checker {
        known,
        info: &info,
        source,
        bound: Vec::new(),
        reads_envelope: false,
        errors: Vec::new(),
    };
    walk.expression(&expression, 0);
    if !walk.errors.is_empty() {
        return Err(walk.errors);
    }

    let reads_envelope = walk.reads_envelope;
    let deep = is_deeper(&expression, EVALUATED_IN_PLACE);
    rewrite(&mut expression);
    Ok(CheckedExpression {
        expression,
        deep,
        reads_envelope,
    })
}

fn rejected(message: String) -> Vec<CheckError> {
    vec![CheckError {
        at: None,
        message,
        suggestion: None,
    }]
}

/// Maximum depth that is evaluated on the stack of the caller; deeper expressions use a separate
/// stack.
const EVALUATED_IN_PLACE: usize = 24;

/// Maximum depth of operators and fields, because evaluation recurses over them.
const MAX_DEPTH: usize = 100;

fn is_deeper(root: &IdedExpr, limit: usize) -> bool {
    // Without recursion, because the tree is not bounded yet.
    let mut open = vec![(root, 1)];
    while let Some((node, depth)) = open.pop() {
        if depth > limit {
            return true;
        }
        open.extend(children(node).into_iter().map(|child| (child, depth + 1)));
    }
    false
}

/// Maximum nesting of brackets, signs and conditions. The parser recurses over them and uses much
/// stack for each.
const MAX_NESTING: usize = 32;
/// Maximum nesting or length that is parsed on the stack of the caller.
const SHALLOW: usize = 8;
const SHORT_BYTES: usize = 64;

fn read(env: &Env, source: &str) -> Result<(IdedExpr, SourceInfo), Vec<CheckError>> {
    let parser = env.parser().enable_ident_escape_syntax(true);
    let parsed = parser.parse_with_source_info(source);
    parsed.map_err(|errors| errors.errors.iter().take(1).map(syntax).collect())
}

/// Returns an upper bound of the nesting of brackets, signs and conditions.
fn nesting(source: &str) -> usize {
    let mut depth = 0_usize;
    let mut signs = 0;
    let mut ternaries = 0;
    let mut deepest = 0;

    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'?' => ternaries += 1,
            _ => {}
        }

        // The parser recurses for each sign of a row such as `!!!x`.
        signs = if matches!(byte, b'!' | b'-') {
            signs + 1
        } else {
            0
        };
        deepest = deepest.max(depth).max(signs).max(ternaries);
    }
    deepest
}

/// Returns the first syntax error; later ones are mostly consequences of it.
fn syntax(error: &ParseError) -> CheckError {
    let at = usize::try_from(error.pos.0)
        .ok()
        .zip(usize::try_from(error.pos.1).ok());
    let found = error
        .msg
        .strip_prefix("Syntax error: ")
        .unwrap_or(&error.msg);
    let found = found.split(" expecting ").next().unwrap_or(found);

    let (message, suggestion) = if found.contains("<EOF>") {
        ("the expression ends too early".to_owned(), None)
    } else if found.contains("error at: '= ") || found.ends_with("error at: '='") {
        (
            "the expression is invalid".to_owned(),
            Some("use `==` for equality".to_owned()),
        )
    } else {
        (format!("the expression is invalid: {found}"), None)
    };

    CheckError {
        at: at.filter(|at| *at > (0, 0)),
        message,
        suggestion,
    }
}

struct Checker<'a> {
    known: NameResolution<'a>,
    info: &'a SourceInfo,
    source: &'a str,
    /// Names that comprehensions bind.
    bound: Vec<&'a str>,
    reads_envelope: bool,
    errors: Vec<CheckError>,
}

impl<'a> Checker<'a> {
    fn expression(&mut self, node: &'a IdedExpr, nesting: usize) {
        match &node.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => self.ident(node.id, name),
            Expr::Select(select) if is_qualified_type(select) => {}
            Expr::Select(select) => {
                self.known_var(node, select);
                self.known_attribute(node, select);
                self.expression(&select.operand, nesting);
            }
            Expr::Call(call) => self.call(node.id, call, nesting),
            Expr::List(list) => list
                .elements
                .iter()
                .for_each(|item| self.expression(item, nesting)),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.expression(&entry.key, nesting);
                        self.expression(&entry.value, nesting);
                    }
                }
            }
            Expr::Struct(_) => self.reject(node.id, "the language does not support messages", None),
            Expr::Comprehension(comprehension) => {
                self.comprehension(node.id, comprehension, nesting);
            }
        }
    }

    fn ident(&mut self, id: u64, name: &str) {
        // Names with `@` are those that macros create; the grammar does not permit them in a
        // source.
        if self.bound.contains(&name) || name.starts_with('@') || TYPES.contains(&name) {
            return;
        }

        let names: Vec<_> = match self.known {
            NameResolution::Scoped(scope) => {
                let roots = scope.roots.iter().map(|root| root.name());
                roots
                    .chain(
                        scope
                            .element
                            .into_iter()
                            .flat_map(|element| [element, INDEX]),
                    )
                    .collect()
            }
            NameResolution::Free(names) => names
                .iter()
                .map(|name| name.split('.').next().unwrap_or(name))
                .collect(),
        };

        if names.contains(&name) {
            self.reads_envelope |= name == Root::Envelope.name();
            return;
        }

        let message = format!("unknown name `{name}`; available: {}", listed(&names));
        let suggestion = match (self.known, Root::named(name)) {
            (NameResolution::Scoped(scope), Some(Root::Event))
                if !scope.roots.contains(&Root::Body) =>
            {
                Some("save the required event data with `vars` or `save`".to_owned())
            }
            (NameResolution::Scoped(scope), Some(Root::Envelope))
                if scope.roots.contains(&Root::Event) =>
            {
                Some(
                    "only events have an envelope; here, `event` is a response or older data"
                        .to_owned(),
                )
            }
            (NameResolution::Scoped(_), Some(_)) => None,
            (NameResolution::Scoped(_) | NameResolution::Free(_), _) => did_you_mean(name, names),
        };
        self.reject(id, message, suggestion);
    }

    /// Checks that `vars.x` is set by the definition.
    fn known_var(&mut self, node: &IdedExpr, select: &SelectExpr) {
        let NameResolution::Scoped(scope) = self.known else {
            return;
        };
        let Expr::Ident(root) = &select.operand.expr else {
            return;
        };
        let Some(vars) = scope.vars else {
            return;
        };

        let shadowed = self.bound.contains(&root.as_str());
        if root != Root::Vars.name() || shadowed || vars.contains(&select.field) {
            return;
        }

        let message = format!("`vars.{}` is never set", select.field);
        let near = did_you_mean(&select.field, vars.iter().map(String::as_str));
        self.reject(
            node.id,
            message,
            near.or_else(|| Some("set it with `vars` or `save`".to_owned())),
        );
    }

    /// Checks that `envelope.x` is an attribute.
    fn known_attribute(&mut self, node: &IdedExpr, select: &SelectExpr) {
        let NameResolution::Scoped(_) = self.known else {
            return;
        };
        let Expr::Ident(root) = &select.operand.expr else {
            return;
        };

        let is_envelope = root == Root::Envelope.name() && !self.bound.contains(&root.as_str());
        if !is_envelope || ENVELOPE_FIELDS.contains(&select.field.as_str()) {
            return;
        }

        let near = did_you_mean(&select.field, ENVELOPE_FIELDS).unwrap_or_else(|| {
            match select.field.as_str() {
                "data" => "use `event` for the data".to_owned(),
                other => format!("if it is an extension, read `envelope.extensions.{other}`"),
            }
        });
        self.reject(
            node.id,
            format!("`envelope.{}` does not exist", select.field),
            Some(near),
        );
    }

    fn call(&mut self, id: u64, call: &'a CallExpr, nesting: usize) {
        self.known_function(id, &call.func_name);
        if let Some(target) = call
            .target
            .as_deref()
            .filter(|target| !is_namespace(target))
        {
            self.expression(target, nesting);
        }

        call.args
            .iter()
            .for_each(|arg| self.expression(arg, nesting));
    }

    fn known_function(&mut self, id: u64, name: &str) {
        let is_operator = !name.starts_with(|c: char| c.is_ascii_alphabetic());

        // Operators and names of the macros cannot be written by users.
        if is_operator || NAMES.contains(&name) || name.contains('@') {
            return;
        }

        let missing = MISSING.iter().find(|(function, _)| *function == name);
        let suggestion = match missing {
            Some((_, hint)) => Some((*hint).to_owned()),
            None => did_you_mean(name, NAMES),
        };
        self.reject(id, format!("unknown function `{name}`"), suggestion);
    }

    fn comprehension(&mut self, id: u64, c: &'a ComprehensionExpr, nesting: usize) {
        let inner = nesting + usize::from(!is_bind(c));
        if inner > MAX_COMPREHENSIONS {
            let message =
                format!("map, filter, all and exists exceed {MAX_COMPREHENSIONS} nesting levels");
            self.reject(
                id,
                message,
                Some(
                    "split the expression into two steps, or prepare the list upstream".to_owned(),
                ),
            );
            // The body is not checked: its errors would hide that of the nesting.
            return;
        }

        self.expression(&c.iter_range, nesting);
        self.expression(&c.accu_init, nesting);

        // Names that the comprehension binds are known in its body only.
        let outer = self.bound.len();
        self.bound
            .extend([c.iter_var.as_str(), c.accu_var.as_str()]);
        self.bound.extend(c.iter_var2.as_deref());
        for part in [&c.loop_cond, &c.loop_step, &c.result] {
            self.expression(part, inner);
        }
        self.bound.truncate(outer);
    }

    fn reject(&mut self, id: u64, message: impl Into<String>, suggestion: Option<String>) {
        let at = self
            .info
            .offset_for(id)
            .map(|(start, _)| position(self.source, start as usize));
        self.errors.push(CheckError {
            at,
            message: message.into(),
            suggestion,
        });
    }
}

/// Returns line and column, from 1, of a character offset.
fn position(source: &str, offset: usize) -> (usize, usize) {
    let before = source.chars().take(offset);
    before.fold((1, 1), |(line, column), c| {
        if c == '\n' {
            (line + 1, 1)
        } else {
            (line, column + 1)
        }
    })
}

/// Returns true for a dotted type name such as `google.protobuf.Timestamp`.
fn is_qualified_type(select: &SelectExpr) -> bool {
    let Expr::Select(inner) = &select.operand.expr else {
        return false;
    };
    let Expr::Ident(root) = &inner.operand.expr else {
        return false;
    };
    !select.test && TYPES.contains(&format!("{root}.{}.{}", inner.field, select.field).as_str())
}

/// Returns true for the namespace of a function such as `math.abs`.
fn is_namespace(target: &IdedExpr) -> bool {
    matches!(&target.expr, Expr::Ident(name) if NAMESPACES.contains(&name.as_str()))
}

/// Formats names as `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
