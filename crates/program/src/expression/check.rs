//! What an expression must keep to before it may run: its variables exist, its functions are known, its cost is bounded,
//! its value does not depend on the order of a hash map.

use cel::Env;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, SourceInfo, operators};
use cel::parser::ParseError;

use super::root::Root;
use crate::limits::{MAX_COMPREHENSIONS, MAX_EXPRESSION_BYTES};
use crate::problem::did_you_mean;

/// The function `==` is compiled to.
pub(super) const EQUAL: &str = "@equal";

const FUNCTIONS: [&str; 22] = [
    "all",
    "bool",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "exists",
    "exists_one",
    "filter",
    "has",
    "hasValue",
    "int",
    "map",
    "none",
    "of",
    "ofNonZeroValue",
    "or",
    "orValue",
    "size",
    "startsWith",
    "string",
    "uint",
];

const MISSING: [(&str, &str); 4] = [
    ("matches", "regular expressions are not part of the language; use startsWith, endsWith or contains"),
    ("timestamp", "times are not part of the language; compare RFC 3339 texts of one offset, or numbers"),
    (
        "duration",
        "durations are not part of the language; use `timeout` for deadlines and numbers to compute",
    ),
    ("bytes", "bytes are not part of the language, JSON has none"),
];

/// What an expression may speak of at its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    /// The roots that exist.
    pub(crate) roots: &'a [Root],
    /// The names under `vars`; `None` where they are not known.
    pub(crate) vars: Option<&'a [String]>,
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

/// Parses, checks, and rewrites `==`.
pub(super) fn parse(env: &Env, source: &str, scope: &Scope<'_>) -> Result<IdedExpr, Vec<Refused>> {
    if source.len() > MAX_EXPRESSION_BYTES {
        let message =
            format!("the expression is {} bytes long, the limit is {MAX_EXPRESSION_BYTES}", source.len());
        return Err(vec![Refused { at: None, message, suggestion: None }]);
    }
    if let Some(refused) = too_nested(source) {
        return Err(vec![refused]);
    }
    let program =
        env.compile(source).map_err(|errors| errors.errors.iter().take(1).map(syntax).collect::<Vec<_>>())?;
    if is_deeper(program.expression(), MAX_DEPTH) {
        let message = format!("the expression chains more than {MAX_DEPTH} operators or fields");
        return Err(vec![Refused { at: None, message, suggestion: None }]);
    }
    let mut walk =
        Walk { scope, info: program.source_info(), source, bound: Vec::new(), refused: Vec::new() };
    walk.expression(program.expression(), 0);
    if !walk.refused.is_empty() {
        return Err(walk.refused);
    }
    let mut expression = program.expression().clone();
    rewrite_equality(&mut expression);
    Ok(expression)
}

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

/// The parser recurses over brackets and signs; what it is handed must be flat enough for a small stack.
const MAX_NESTING: usize = 32;

fn too_nested(source: &str) -> Option<Refused> {
    let mut depth = 0_usize;
    let mut signs = 0_usize;
    let mut ternaries = 0_usize;
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'?' => ternaries += 1,
            _ => {}
        }
        signs = if matches!(byte, b'!' | b'-') { signs + 1 } else { 0 };
        if depth.max(signs).max(ternaries) > MAX_NESTING {
            let message = format!("the expression nests deeper than {MAX_NESTING} levels");
            return Some(Refused { at: None, message, suggestion: None });
        }
    }
    None
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
    scope: &'a Scope<'a>,
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
        let exists = self.scope.roots.iter().any(|root| root.name() == name);
        if exists || self.bound.contains(&name) || name.starts_with('@') {
            return;
        }
        let names: Vec<_> = self.scope.roots.iter().map(|root| root.name()).collect();
        let message = format!("`{name}` is not known here; there is {}", listed(&names));
        let suggestion = match Root::named(name) {
            Some(Root::Event) => Some("keep what you need of an event with `vars` or `save`".to_owned()),
            Some(_) => None,
            None => did_you_mean(name, names),
        };
        self.refuse(id, message, suggestion);
    }

    /// `vars.x` where nothing ever sets `x`.
    fn known_var(&mut self, node: &IdedExpr, select: &cel::common::ast::SelectExpr) {
        let (Expr::Ident(root), Some(vars)) = (&select.operand.expr, self.scope.vars) else { return };
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
        if call.func_name == operators::IN && call.args.get(1).is_some_and(holds_nested_literal) {
            self.refuse(id, "`in` over a literal of lists or maps is not supported", None);
        }
        let optional = |target: &IdedExpr| matches!(&target.expr, Expr::Ident(name) if name == "optional");
        if let Some(target) = call.target.as_deref().filter(|target| !optional(target)) {
            self.expression(target, nesting);
        }
        call.args.iter().for_each(|arg| self.expression(arg, nesting));
    }

    fn known_function(&mut self, id: u64, name: &str) {
        let operator = !name.starts_with(|c: char| c.is_ascii_alphabetic());
        if operator || FUNCTIONS.contains(&name) || name == "value" {
            return;
        }
        let missing = MISSING.iter().find(|(function, _)| *function == name);
        let suggestion = match missing {
            Some((_, why)) => Some((*why).to_owned()),
            None => did_you_mean(name, FUNCTIONS),
        };
        self.refuse(id, format!("there is no function `{name}`"), suggestion);
    }

    fn comprehension(&mut self, id: u64, c: &'a ComprehensionExpr, nesting: usize) {
        let inner = nesting + 1;
        if inner > MAX_COMPREHENSIONS {
            let message = format!("map, filter, all and exists stand more than {MAX_COMPREHENSIONS} deep");
            self.refuse(id, message, Some("split it over two steps or prepare the list upstream".to_owned()));
            return;
        }
        if holds_map_literal(&c.iter_range) {
            let message = "a map literal has no order, so nothing may go through it";
            self.refuse(id, message, Some("use a list of pairs".to_owned()));
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

fn holds_map_literal(node: &IdedExpr) -> bool {
    matches!(node.expr, Expr::Map(_)) || children(node).into_iter().any(holds_map_literal)
}

fn holds_nested_literal(node: &IdedExpr) -> bool {
    let Expr::List(list) = &node.expr else { return false };
    list.elements.iter().any(|item| matches!(item.expr, Expr::List(_) | Expr::Map(_)))
}

fn children(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => Vec::new(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Comprehension(c) => vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result],
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

/// `a == b` becomes `@equal(a, b)`, which knows JSON on either side; not where one side is a plain literal.
fn rewrite_equality(node: &mut IdedExpr) {
    match &mut node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => {}
        Expr::Select(select) => rewrite_equality(&mut select.operand),
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| rewrite_equality(target));
            call.args.iter_mut().for_each(rewrite_equality);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(rewrite_equality),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    rewrite_equality(&mut entry.value);
                }
            }
        }
        Expr::Comprehension(c) => {
            for part in
                [&mut c.iter_range, &mut c.accu_init, &mut c.loop_cond, &mut c.loop_step, &mut c.result]
            {
                rewrite_equality(part);
            }
        }
    }
    replace_equality(node);
}

fn replace_equality(node: &mut IdedExpr) {
    let Expr::Call(call) = &mut node.expr else { return };
    let negated = call.func_name == operators::NOT_EQUALS;
    let plain = call.args.iter().any(|arg| matches!(arg.expr, Expr::Literal(_)));
    if plain || !(negated || call.func_name == operators::EQUALS) {
        return;
    }
    EQUAL.clone_into(&mut call.func_name);
    if negated {
        let inner = IdedExpr { id: node.id, expr: std::mem::take(&mut node.expr) };
        let func_name = operators::LOGICAL_NOT.to_owned();
        node.expr = Expr::Call(CallExpr { func_name, target: None, args: vec![inner] });
    }
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
