//! What deny.toml allows to be linked, checked without cargo-deny, which would have to be built on every machine first. Its
//! check of advisories needs their database and is for whoever has it at hand.

use anyhow::{Context, Result};
use serde_json::Value as Json;
use spdx::{Expression, Licensee, ParseMode};
use toml::{Table, Value};

use super::Offence;
use crate::{suites::read, tree::SourceFile};

/// The file with the lists.
const RULES_IN: &str = "deny.toml";

/// A package of the dependency graph.
struct Package {
    name: String,
    licence: Option<String>,
    /// Where it comes from; nothing for our own.
    source: Option<String>,
}

pub(super) fn dependencies_are_allowed(files: &[SourceFile]) -> Vec<Offence> {
    let Some(rules) = files.iter().find(|file| file.path == RULES_IN) else {
        return vec![Offence::new(RULES_IN, 0, "the file is missing")];
    };
    let checked = Rules::parse(&rules.text).and_then(|rules| Ok(rules.check(&packages(&rules.targets)?)));
    checked.unwrap_or_else(|error| vec![Offence::new(RULES_IN, 0, format!("{error:#}"))])
}

/// The parts of deny.toml that can be checked here.
struct Rules {
    licences: Vec<Licensee>,
    banned: Vec<String>,
    targets: Vec<String>,
}

impl Rules {
    fn parse(text: &str) -> Result<Self> {
        let table: Table = text.parse()?;
        let list = |section: &str, key: &str| -> Result<Vec<Value>> {
            let found = table.get(section).and_then(|section| section.get(key)).and_then(Value::as_array);
            found.cloned().with_context(|| format!("[{section}] has no list {key}"))
        };
        let texts = |values: Vec<Value>| values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
        let licence = |name: String| Licensee::parse(&name).with_context(|| format!("{name} is no licence"));
        let crates = list("bans", "deny")?;
        Ok(Rules {
            licences: texts(list("licenses", "allow")?).into_iter().map(licence).collect::<Result<_>>()?,
            // What others may bring is told apart by cargo-deny, which knows who asks for what.
            banned: texts(
                crates
                    .iter()
                    .filter(|entry| entry.get("wrappers").is_none())
                    .filter_map(|entry| entry.get("crate").cloned())
                    .collect(),
            ),
            targets: texts(list("graph", "targets")?),
        })
    }

    fn check(&self, packages: &[Package]) -> Vec<Offence> {
        let others = packages.iter().filter(|package| package.source.is_some());
        others.flat_map(|package| self.wrong_with(package)).map(|why| Offence::new("Cargo.lock", 0, why)).collect()
    }

    fn wrong_with(&self, package: &Package) -> Vec<String> {
        let name = &package.name;
        let mut wrong = Vec::new();
        if self.banned.contains(name) {
            wrong.push(format!("{name} is denied by {RULES_IN}"));
        }
        if !package.source.as_deref().is_some_and(|source| source.starts_with("registry+")) {
            wrong.push(format!("{name} does not come from a registry"));
        }
        let licence = package.licence.as_deref().unwrap_or_default();
        // Old crates write `MIT/Apache-2.0`, which the lax mode takes for `OR`.
        let allowed = Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|expression| {
            expression.evaluate(|asked| self.licences.iter().any(|allowed| allowed.satisfies(asked)))
        });
        if !allowed {
            wrong.push(format!("the licence of {name}, {licence:?}, is not among those that {RULES_IN} allows"));
        }
        wrong
    }
}

/// Every package that is built for one of these targets.
fn packages(targets: &[String]) -> Result<Vec<Package>> {
    let mut argv = vec!["cargo", "metadata", "--quiet", "--locked", "--all-features", "--format-version", "1"];
    argv.extend(targets.iter().flat_map(|target| ["--filter-platform", target]));
    let metadata: Json = serde_json::from_str(&read(&argv)?)?;
    let used: Vec<&str> = listed(&metadata["resolve"]["nodes"]).filter_map(|node| node["id"].as_str()).collect();
    let text = |value: &Json| value.as_str().map(str::to_owned);
    let packages =
        listed(&metadata["packages"]).filter(|package| package["id"].as_str().is_some_and(|id| used.contains(&id)));
    packages
        .map(|package| {
            Ok(Package {
                name: text(&package["name"]).context("a package has no name")?,
                licence: text(&package["license"]),
                source: text(&package["source"]),
            })
        })
        .collect()
}

fn listed(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "[graph]\ntargets = ['x']\n[licenses]\nallow = ['MIT', 'Apache-2.0 WITH LLVM-exception']\n\
                         [bans]\ndeny = [{ crate = 'bad' }]\n";

    #[test]
    fn licences_bans_and_sources_are_checked() {
        let rules = Rules::parse(RULES).unwrap();
        let wrong = |name: &str, licence: &str, source: &str| {
            let package =
                Package { name: name.into(), licence: Some(licence.into()), source: Some(format!("{source}+x")) };
            rules.check(&[package]).len()
        };
        for (licence, count) in [
            ("MIT", 0),
            ("MIT OR GPL-3.0-only", 0),
            ("GPL-3.0-only/MIT", 0),
            ("Apache-2.0 WITH LLVM-exception", 0),
            ("MIT AND GPL-3.0-only", 1),
            ("Apache-2.0", 1),
            ("no such licence", 1),
            ("", 1),
        ] {
            assert_eq!(wrong("good", licence, "registry"), count, "{licence}");
        }
        assert_eq!(wrong("bad", "MIT", "registry"), 1);
        assert_eq!(wrong("good", "MIT", "git"), 1);
        let ours = Package { name: "ours".into(), licence: None, source: None };
        assert!(rules.check(&[ours]).is_empty());
    }

    #[test]
    fn the_packages_of_this_workspace_are_found() {
        let packages = packages(&["x86_64-unknown-linux-gnu".to_owned()]).unwrap();
        for name in ["clap", "glovebox-core", "tempfile"] {
            assert!(packages.iter().any(|package| package.name == name), "{name}");
        }
        assert!(!packages.iter().any(|package| package.name == "windows-sys"));
    }
}
