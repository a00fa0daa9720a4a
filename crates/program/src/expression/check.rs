//! What an expression must keep to before it may run: its variables exist, its functions are known, its cost is bounded,
//! its value does not depend on the order of a hash map.

use cel::Env;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, SelectExpr, SourceInfo};
use cel::parser::ParseError;

use super::ast::{children, is_bind};
use super::cost::with_room;
use super::names::{NAMES, NAMESPACES, TYPES};
use super::rewrite::rewrite;
use super::root::{INDEX, Root};
use crate::diagnostic::did_you_mean;
use crate::limits::{MAX_COMPREHENSIONS, MAX_EXPRESSION_BYTES};

/// Functions that people look for, and what there is instead.
const MISSING: [(&str, &str); 2] = [
    ("now", "an expression reads no clock; use the time that an event carries"),
    ("bind", "it is `cel.bind(name, value, result)`"),
];

/// What an expression may speak of at its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    /// The roots that exist.
    pub(crate) roots: &'a [Root],
    /// The names under `vars`; `None` where they are not known.
    pub(crate) vars: Option<&'a [String]>,
    /// The name of the element, where the place belongs to a step for each element of a list.
    pub(crate) element: Option<&'a str>,
}

impl Scope<'_> {
    /// What a name stands for here.
    pub(super) fn root(&self, name: &str) -> Option<Root> {
        match self.element {
            Some(element) if element == name => Some(Root::Element),
            Some(_) if name == INDEX => Some(Root::Index),
            Some(_) | None => Root::named(name),
        }
    }
}

/// The names an expression may begin with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known<'a> {
    /// Those of a place in a definition.
    Place(&'a Scope<'a>),
    /// Any of these, as they are.
    Free(&'a [&'a str]),
}

/// Why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Line and column, from 1.
    pub(crate) at: Option<(usize, usize)>,
    /// What is wrong.
    pub(crate) message: String,
    /// What was probably meant.
    pub(crate) suggestion: Option<String>,
}

/// An expression that may run.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) expression: IdedExpr,
    /// It takes more stack than a caller may have.
    pub(super) deep: bool,
}

/// Parses, checks, and rewrites `==`.
pub(super) fn parse(env: &Env, source: &str, known: Known<'_>) -> Result<Parsed, Vec<Refused>> {
    if source.len() > MAX_EXPRESSION_BYTES {
        let message =
            format!("the expression is {} bytes long, the limit is {MAX_EXPRESSION_BYTES}", source.len());
        return Err(vec![Refused { at: None, message, suggestion: None }]);
    }
    let nesting = nesting(source);
    if nesting > MAX_NESTING {
        let message = format!("the expression nests deeper than {MAX_NESTING} levels");
        return Err(vec![Refused { at: None, message, suggestion: None }]);
    }
    let small = nesting <= SHALLOW && source.len() <= SHORT_BYTES;
    let (mut expression, info) = if small { read(env, source) } else { with_room(|| read(env, source)) }?;
    if is_deeper(&expression, MAX_DEPTH) {
        let message = format!("the expression chains more than {MAX_DEPTH} operators or fields");
        return Err(vec![Refused { at: None, message, suggestion: None }]);
    }
    let mut walk = Walk { known, info: &info, source, bound: Vec::new(), refused: Vec::new() };
    walk.expression(&expression, 0);
    if !walk.refused.is_empty() {
        return Err(walk.refused);
    }
    let deep = is_deeper(&expression, EVALUATED_IN_PLACE);
    rewrite(&mut expression);
    Ok(Parsed { expression, deep })
}

/// What is deeper is evaluated on a stack of its own.
const EVALUATED_IN_PLACE: usize = 24;

/// Evaluation recurses over operators and fields.
const MAX_DEPTH: usize = 100;

fn is_deeper(root: &IdedExpr, limit: usize) -> bool {
    let mut open = vec![(root, 1)];
    while let Some((node, depth)) = open.pop() {
        if depth > limit {
            return true;
        }
        open.extend(children(node).into_iter().map(|child| (child, depth + 1)));
    }
    false
}

/// The parser recurses over brackets, signs and conditions, and takes much of the stack for each.
const MAX_NESTING: usize = 32;
/// What nests deeper or is longer than this is parsed on a stack of its own.
const SHALLOW: usize = 8;
const SHORT_BYTES: usize = 64;

fn read(env: &Env, source: &str) -> Result<(IdedExpr, SourceInfo), Vec<Refused>> {
    let parser = env.parser().enable_ident_escape_syntax(true);
    let parsed = parser.parse_with_source_info(source);
    parsed.map_err(|errors| errors.errors.iter().take(1).map(syntax).collect())
}

/// How deep brackets, signs or conditions stand in one another, or more.
fn nesting(source: &str) -> usize {
    let (mut depth, mut signs, mut ternaries, mut deepest) = (0_usize, 0, 0, 0);
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'?' => ternaries += 1,
            _ => {}
        }
        signs = if matches!(byte, b'!' | b'-') { signs + 1 } else { 0 };
        deepest = deepest.max(depth).max(signs).max(ternaries);
    }
    deepest
}

/// The first syntax error; those after it are mostly its echo.
fn syntax(error: &ParseError) -> Refused {
    let at = usize::try_from(error.pos.0).ok().zip(usize::try_from(error.pos.1).ok());
    let found = error.msg.strip_prefix("Syntax error: ").unwrap_or(&error.msg);
    let found = found.split(" expecting ").next().unwrap_or(found);
    let (message, suggestion) = if found.contains("<EOF>") {
        ("the expression ends too early".to_owned(), None)
    } else if found.contains("error at: '= ") || found.ends_with("error at: '='") {
        ("the expression does not parse".to_owned(), Some("equality is `==`".to_owned()))
    } else {
        (format!("the expression does not parse: {found}"), None)
    };
    Refused { at: at.filter(|at| *at > (0, 0)), message, suggestion }
}

struct Walk<'a> {
    known: Known<'a>,
    info: &'a SourceInfo,
    source: &'a str,
    /// Names that comprehensions bind.
    bound: Vec<&'a str>,
    refused: Vec<Refused>,
}

impl<'a> Walk<'a> {
    fn expression(&mut self, node: &'a IdedExpr, nesting: usize) {
        match &node.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => self.ident(node.id, name),
            Expr::Select(select) if is_qualified_type(select) => {}
            Expr::Select(select) => {
                self.known_var(node, select);
                self.expression(&select.operand, nesting);
            }
            Expr::Call(call) => self.call(node.id, call, nesting),
            Expr::List(list) => list.elements.iter().for_each(|item| self.expression(item, nesting)),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.expression(&entry.key, nesting);
                        self.expression(&entry.value, nesting);
                    }
                }
            }
            Expr::Struct(_) => self.refuse(node.id, "messages are not part of the language", None),
            Expr::Comprehension(comprehension) => self.comprehension(node.id, comprehension, nesting),
        }
    }

    fn ident(&mut self, id: u64, name: &str) {
        if self.bound.contains(&name) || name.starts_with('@') || TYPES.contains(&name) {
            return;
        }
        let names: Vec<_> = match self.known {
            Known::Place(scope) => {
                let roots = scope.roots.iter().map(|root| root.name());
                roots.chain(scope.element.into_iter().flat_map(|element| [element, INDEX])).collect()
            }
            Known::Free(names) => names.iter().map(|n| n.split('.').next().unwrap_or(n)).collect(),
        };
        if names.contains(&name) {
            return;
        }
        let message = format!("`{name}` is not known here; there is {}", listed(&names));
        let suggestion = match (self.known, Root::named(name)) {
            (Known::Place(_), Some(Root::Event)) => {
                Some("keep what you need of an event with `vars` or `save`".to_owned())
            }
            (Known::Place(_), Some(_)) => None,
            (Known::Place(_) | Known::Free(_), _) => did_you_mean(name, names),
        };
        self.refuse(id, message, suggestion);
    }

    /// `vars.x` where nothing ever sets `x`.
    fn known_var(&mut self, node: &IdedExpr, select: &SelectExpr) {
        let Known::Place(scope) = self.known else { return };
        let (Expr::Ident(root), Some(vars)) = (&select.operand.expr, scope.vars) else { return };
        let shadowed = self.bound.contains(&root.as_str());
        if root != Root::Vars.name() || shadowed || vars.contains(&select.field) {
            return;
        }
        let message = format!("nothing sets `vars.{}`", select.field);
        let near = did_you_mean(&select.field, vars.iter().map(String::as_str));
        self.refuse(node.id, message, near.or_else(|| Some("set it with `vars` or `save`".to_owned())));
    }

    fn call(&mut self, id: u64, call: &'a CallExpr, nesting: usize) {
        self.known_function(id, &call.func_name);
        let space =
            |target: &IdedExpr| matches!(&target.expr, Expr::Ident(n) if NAMESPACES.contains(&n.as_str()));
        if let Some(target) = call.target.as_deref().filter(|target| !space(target)) {
            self.expression(target, nesting);
        }
        call.args.iter().for_each(|arg| self.expression(arg, nesting));
    }

    fn known_function(&mut self, id: u64, name: &str) {
        let operator = !name.starts_with(|c: char| c.is_ascii_alphabetic());
        if operator || NAMES.contains(&name) || name.contains('@') {
            return;
        }
        let missing = MISSING.iter().find(|(function, _)| *function == name);
        let suggestion = match missing {
            Some((_, why)) => Some((*why).to_owned()),
            None => did_you_mean(name, NAMES),
        };
        self.refuse(id, format!("there is no function `{name}`"), suggestion);
    }

    fn comprehension(&mut self, id: u64, c: &'a ComprehensionExpr, nesting: usize) {
        let inner = nesting + usize::from(!is_bind(c));
        if inner > MAX_COMPREHENSIONS {
            let message = format!("map, filter, all and exists stand more than {MAX_COMPREHENSIONS} deep");
            self.refuse(id, message, Some("split it over two steps or prepare the list upstream".to_owned()));
            return;
        }
        self.expression(&c.iter_range, nesting);
        self.expression(&c.accu_init, nesting);
        let outer = self.bound.len();
        self.bound.extend([c.iter_var.as_str(), c.accu_var.as_str()]);
        self.bound.extend(c.iter_var2.as_deref());
        for part in [&c.loop_cond, &c.loop_step, &c.result] {
            self.expression(part, inner);
        }
        self.bound.truncate(outer);
    }

    fn refuse(&mut self, id: u64, message: impl Into<String>, suggestion: Option<String>) {
        let at = self.info.offset_for(id).map(|(start, _)| position(self.source, start as usize));
        self.refused.push(Refused { at, message: message.into(), suggestion });
    }
}

/// Line and column, from 1, of a character offset.
fn position(source: &str, offset: usize) -> (usize, usize) {
    let before = source.chars().take(offset);
    before.fold((1, 1), |(line, column), c| if c == '\n' { (line + 1, 1) } else { (line, column + 1) })
}

/// `google.protobuf.Timestamp`, a name with dots.
fn is_qualified_type(select: &SelectExpr) -> bool {
    let Expr::Select(inner) = &select.operand.expr else { return false };
    let Expr::Ident(root) = &inner.operand.expr else { return false };
    !select.test && TYPES.contains(&format!("{root}.{}.{}", inner.field, select.field).as_str())
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
