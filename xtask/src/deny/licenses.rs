//! Check that the license of every package is compatible with the license of this project.

use spdx::{Expression, Licensee, ParseMode};

use super::config::{Level, Licenses};
use super::diagnostic::Diagnostic;
use super::graph::{Graph, Package};

/// Evaluates the license expression of every package.
pub(super) fn evaluate(config: &Licenses, graph: &Graph) -> Vec<Diagnostic> {
    graph.packages.iter().filter_map(|package| evaluate_package(config, package)).collect()
}

fn evaluate_package(config: &Licenses, package: &Package) -> Option<Diagnostic> {
    let exceptions =
        config.exceptions.iter().filter(|one| one.package.matches(&package.name, &package.version));
    let names = config.allow.iter().chain(exceptions.flat_map(|one| &one.allow));
    let allowed: Vec<Licensee> = names.filter_map(|name| Licensee::parse(name).ok()).collect();
    let deny =
        |message| Some(Diagnostic { level: Level::Deny, text: format!("{} {message}", package.spec()) });
    let Some(text) = &package.license else { return deny("states no license".to_owned()) };
    match Expression::parse_mode(text, ParseMode::LAX) {
        Err(error) => deny(format!("states an invalid license, `{text}`: {}", error.reason)),
        Ok(expression)
            if expression.evaluate(|one| allowed.iter().any(|licensee| licensee.satisfies(one))) =>
        {
            None
        }
        Ok(_) => deny(format!("is licensed `{text}`, which [licenses] does not allow")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{Exception, Licenses};
    use super::super::graph::{Graph, package};
    use super::evaluate;

    #[track_caller]
    fn check(license: Option<&str>, expected: &[&str]) {
        let exception = Exception { package: "special".into(), allow: vec!["OpenSSL".to_owned()] };
        let config =
            Licenses { allow: vec!["MIT".to_owned(), "Apache-2.0".to_owned()], exceptions: vec![exception] };
        let mut plain = package("plain", "1.0.0");
        plain.license = license.map(str::to_owned);
        let mut special = package("special", "1.0.0");
        special.license = Some("OpenSSL".to_owned());
        let diagnostics = evaluate(&config, &Graph { packages: vec![plain, special] });
        let texts: Vec<&str> = diagnostics.iter().map(|diagnostic| diagnostic.text.as_str()).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn license_or_needs_one_allowed_side() {
        check(Some("GPL-3.0-only OR MIT"), &[]);
        check(Some("MIT/Apache-2.0"), &[]);
    }

    #[test]
    fn license_and_needs_both_sides_allowed() {
        let text = "plain@1.0.0 is licensed `MIT AND GPL-3.0-only`, which [licenses] does not allow";
        check(Some("MIT AND GPL-3.0-only"), &[text]);
    }

    #[test]
    fn package_without_a_license_is_denied() {
        check(None, &["plain@1.0.0 states no license"]);
    }
}
