//! Every package carries a licence that lets us ship it under ours.

use spdx::{Expression, Licensee, ParseMode};

use super::config::{Level, Licenses};
use super::graph::{Graph, Package};
use super::verdict::Verdict;

/// Judges the licence expression of every package.
pub(super) fn judge(config: &Licenses, graph: &Graph) -> Vec<Verdict> {
    graph.packages.iter().filter_map(|package| judge_package(config, package)).collect()
}

fn judge_package(config: &Licenses, package: &Package) -> Option<Verdict> {
    let exceptions =
        config.exceptions.iter().filter(|one| one.package.matches(&package.name, &package.version));
    let names = config.allow.iter().chain(exceptions.flat_map(|one| &one.allow));
    let allowed: Vec<Licensee> = names.filter_map(|name| Licensee::parse(name).ok()).collect();
    let deny = |what| Some(Verdict { level: Level::Deny, text: format!("{} {what}", package.spec()) });
    let Some(text) = &package.license else { return deny("states no licence".to_owned()) };
    match Expression::parse_mode(text, ParseMode::LAX) {
        Err(error) => deny(format!("states a licence that cannot be read, `{text}`: {}", error.reason)),
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
    use super::judge;

    #[track_caller]
    fn check(license: Option<&str>, expected: &[&str]) {
        let exception = Exception { package: "special".into(), allow: vec!["OpenSSL".to_owned()] };
        let config =
            Licenses { allow: vec!["MIT".to_owned(), "Apache-2.0".to_owned()], exceptions: vec![exception] };
        let mut plain = package("plain", "1.0.0");
        plain.license = license.map(str::to_owned);
        let mut special = package("special", "1.0.0");
        special.license = Some("OpenSSL".to_owned());
        let verdicts = judge(&config, &Graph { packages: vec![plain, special] });
        let texts: Vec<&str> = verdicts.iter().map(|verdict| verdict.text.as_str()).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn one_allowed_side_of_an_or_is_enough() {
        check(Some("GPL-3.0-only OR MIT"), &[]);
        check(Some("MIT/Apache-2.0"), &[]);
    }

    #[test]
    fn both_sides_of_an_and_must_be_allowed() {
        let text = "plain@1.0.0 is licensed `MIT AND GPL-3.0-only`, which [licenses] does not allow";
        check(Some("MIT AND GPL-3.0-only"), &[text]);
    }

    #[test]
    fn a_package_without_a_licence_is_denied() {
        check(None, &["plain@1.0.0 states no licence"]);
    }
}
