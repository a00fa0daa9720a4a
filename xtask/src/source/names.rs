//! Names that a Rust file uses, read from its tokens so that macro bodies count too.
//!
//! Paths are flattened (`use a::{b, c::*}` is `a::b` and `a::c::*`), each with its line. Comments and
//! strings are not tokens, so their content is never treated as code.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// Path in the code: `crate::a::B`, `super::c`, `ractor::Actor`, or a single name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    /// Number of enclosing `mod … { }` in the same file.
    pub(crate) inline_depth: usize,
    /// Whether it follows `::`, so that its first segment is not a name in scope.
    pub(crate) after_colons: bool,
}

/// Method call on a name: `self.apply()`.
#[derive(Debug)]
pub(crate) struct MethodCall {
    pub(crate) receiver: String,
    pub(crate) method: String,
    pub(crate) line: usize,
}

/// Names in a file, in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) paths: Vec<Path>,
    pub(crate) method_calls: Vec<MethodCall>,
    /// Macro calls: name and line.
    pub(crate) macros: Vec<(String, usize)>,
    /// Lines with `#[allow(…)]`, also within `cfg_attr`.
    pub(crate) allows: Vec<usize>,
    /// Lines with `.unwrap()`.
    pub(crate) unwraps: Vec<usize>,
}

impl Names {
    /// Reads all tokens of a file.
    pub(crate) fn collect(tokens: TokenStream) -> Self {
        let mut names = Self::default();
        names.walk(tokens, 0);
        names
    }

    fn walk(&mut self, tokens: TokenStream, depth: usize) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = match &tokens[at] {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    self.attribute(&tokens, at, depth)
                }
                TokenTree::Ident(ident) if ident == "mod" => self.module(&tokens, at, depth),
                TokenTree::Ident(ident) if ident == "pub" && is_visibility(&tokens, at + 1) => {
                    at + 2
                }
                TokenTree::Ident(ident) if is_punct(&tokens, at.wrapping_sub(1), '.') => {
                    self.member(&tokens, at, ident)
                }
                TokenTree::Ident(_) => self.path(&tokens, at, &[], depth),
                TokenTree::Group(group) => {
                    self.walk(group.stream(), depth);
                    at + 1
                }
                _ => at + 1,
            };
        }
    }

    /// Handles `#[…]` and `#![…]`; other tokens after `#` are processed as usual.
    fn attribute(&mut self, tokens: &[TokenTree], at: usize, depth: usize) -> usize {
        let body = if is_punct(tokens, at + 1, '!') {
            at + 2
        } else {
            at + 1
        };
        let Some(group) = group(tokens, body, Delimiter::Bracket) else {
            return at + 1;
        };
        if allows(group.stream()) {
            self.allows.push(group.span_open().start().line);
        }
        self.walk(group.stream(), depth);
        body + 1
    }

    /// Handles `mod name { … }` one level deeper. `mod name;` contains no names.
    fn module(&mut self, tokens: &[TokenTree], at: usize, depth: usize) -> usize {
        if let Some(group) = group(tokens, at + 2, Delimiter::Brace) {
            self.walk(group.stream(), depth + 1);
            return at + 3;
        }
        at + 2
    }

    /// Reads the field or method after a dot, which is never a path.
    fn member(&mut self, tokens: &[TokenTree], at: usize, ident: &Ident) -> usize {
        let line = ident.span().start().line;
        let arguments = group(tokens, at + 1, Delimiter::Parenthesis);
        if ident == "unwrap" && arguments.is_some_and(|group| group.stream().is_empty()) {
            self.unwraps.push(line);
        }
        let is_call = arguments.is_some() || is_colons(tokens, at + 1);
        if let Some(TokenTree::Ident(receiver)) = tokens.get(at.wrapping_sub(2))
            && is_call
            && !is_punct(tokens, at.wrapping_sub(3), '.')
        {
            let (receiver, method) = (receiver.to_string(), ident.to_string());
            self.method_calls.push(MethodCall {
                receiver,
                method,
                line,
            });
        }
        at + 1
    }

    /// Reads the path that starts at `at` after `prefix`; returns the next position.
    fn path(&mut self, tokens: &[TokenTree], at: usize, prefix: &[String], depth: usize) -> usize {
        let line = tokens[at].span().start().line;
        let after_colons = prefix.is_empty() && is_colons(tokens, at.wrapping_sub(2));
        let mut segments = prefix.to_vec();
        let mut next = at;
        while let Some(TokenTree::Ident(ident)) = tokens.get(next) {
            segments.push(ident.to_string());
            next += 1;
            if !is_colons(tokens, next) {
                break;
            }
            if let Some(group) = group(tokens, next + 2, Delimiter::Brace) {
                self.use_group(group, &segments, depth);
                return next + 3;
            }
            if is_punct(tokens, next + 2, '*') {
                segments.push("*".to_owned());
                next += 3;
                break;
            }
            if !matches!(tokens.get(next + 2), Some(TokenTree::Ident(_))) {
                break;
            }
            next += 2;
        }
        if is_punct(tokens, next, '!') && matches!(tokens.get(next + 1), Some(TokenTree::Group(_)))
        {
            self.macros
                .extend(segments.last().cloned().map(|name| (name, line)));
        }
        self.paths.push(Path {
            segments,
            line,
            inline_depth: depth,
            after_colons,
        });
        next
    }

    /// Reads `{b, c::D as E, *}` after a prefix.
    fn use_group(&mut self, group: &Group, prefix: &[String], depth: usize) {
        let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = match &tokens[at] {
                TokenTree::Ident(ident) if ident == "as" => at + 2,
                TokenTree::Ident(_) => self.path(&tokens, at, prefix, depth),
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    let segments = [prefix, &["*".to_owned()]].concat();
                    let line = punct.span().start().line;
                    self.paths.push(Path {
                        segments,
                        line,
                        inline_depth: depth,
                        after_colons: false,
                    });
                    at + 1
                }
                _ => at + 1,
            };
        }
    }
}

fn is_punct(tokens: &[TokenTree], at: usize, expected: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == expected)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens, at, ':') && is_punct(tokens, at.wrapping_add(1), ':')
}

fn group(tokens: &[TokenTree], at: usize, delimiter: Delimiter) -> Option<&Group> {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// Returns whether the group is the `(crate)`, `(super)` or `(in crate::a)` of `pub(…)`, which uses no
/// names.
fn is_visibility(tokens: &[TokenTree], at: usize) -> bool {
    let Some(group) = group(tokens, at, Delimiter::Parenthesis) else {
        return false;
    };
    let content: Vec<String> = group
        .stream()
        .into_iter()
        .map(|token| token.to_string())
        .collect();
    match content.as_slice() {
        [only] => matches!(only.as_str(), "crate" | "super" | "self"),
        [first, ..] => first == "in",
        [] => false,
    }
}

fn allows(tokens: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    (0..tokens.len()).any(|at| match &tokens[at] {
        TokenTree::Ident(ident) => {
            ident == "allow" && group(&tokens, at + 1, Delimiter::Parenthesis).is_some()
        }
        TokenTree::Group(group) => allows(group.stream()),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[track_caller]
    fn collect(text: &str) -> Names {
        Names::collect(text.parse().expect("Rust tokens"))
    }

    fn long_paths(names: &Names) -> Vec<String> {
        let long = names.paths.iter().filter(|path| path.segments.len() > 1);
        long.map(|path| format!("{} {}", path.line, path.segments.join("::")))
            .collect()
    }

    #[test]
    fn flattens_use_groups() {
        let names = collect("use crate::{a, b::{C as D, *}};\nuse super::e::*;");
        assert_eq!(
            long_paths(&names),
            [
                "1 crate::a",
                "1 crate::b::C",
                "1 crate::b::*",
                "2 super::e::*"
            ]
        );
    }

    #[test]
    fn finds_paths_in_expressions_types_and_macros() {
        let names =
            collect("fn f(x: &crate::a::B) -> u8 {\n  println!(\"{}\", crate::c::d::<u8>(x))\n}");
        assert_eq!(long_paths(&names), ["1 crate::a::B", "2 crate::c::d"]);
        assert_eq!(names.macros, [("println".to_owned(), 2)]);
    }

    #[test]
    fn counts_the_inline_modules_around_a_path() {
        let names = collect("mod a { mod b { use super::c; } }");
        let path = names
            .paths
            .iter()
            .find(|path| path.segments.len() > 1)
            .expect("a path");
        assert_eq!(path.inline_depth, 2);
    }

    #[test]
    fn a_visibility_is_not_a_use() {
        let names =
            collect("pub(in crate::a) struct A(pub (crate::b::B, u8)); pub(super) fn f() {}");
        assert_eq!(long_paths(&names), ["1 crate::b::B"]);
        assert!(!names.paths.iter().any(|path| path.segments == ["super"]));
    }

    #[test]
    fn finds_method_calls_on_names() {
        let names = collect("fn f() { self.a(); b.c::<u8>(); self.d.e(); g().h(); self.field; }");
        let calls: Vec<_> = names
            .method_calls
            .iter()
            .map(|call| format!("{}.{}", call.receiver, call.method))
            .collect();
        assert_eq!(calls, ["self.a", "b.c"]);
    }

    #[test]
    fn ignores_strings_and_comments() {
        let names = collect("// x.unwrap() crate::a\nfn f() { g(\"crate::b .unwrap()\") }");
        assert!(long_paths(&names).is_empty() && names.unwraps.is_empty());
    }

    #[test]
    fn finds_bare_unwraps_and_allow_attributes() {
        let names = collect(
            "#![allow(dead_code)]\n#[cfg_attr(x, allow(y))]\nfn allow() { a.unwrap(); b.unwrap_or(1) }",
        );
        assert_eq!(names.allows, [1, 2]);
        assert_eq!(names.unwraps, [3]);
    }
}
