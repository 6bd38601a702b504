//! Rules over the Cargo.toml files: who may know whom.

use toml::{Table, Value};

use super::Offence;
use crate::tree::SourceFile;

/// What each crate may know of the others. Lower crates come first; a line only names lines above it, so dependencies
/// point down. Only the command line names a concrete backend.
const MAY_KNOW: [(&str, &[&str]); 14] = [
    ("glovebox-probe", &[]),
    ("glovebox-core", &[]),
    ("glovebox-archive", &[]),
    ("glovebox-terminal", &[]),
    ("glovebox-proto", &["glovebox-core"]),
    ("glovebox-guest", &["glovebox-archive", "glovebox-core", "glovebox-proto"]),
    // It has the guest built, and links nothing of it.
    ("glovebox-embedded-guest", &[]),
    ("glovebox-native", &["glovebox-archive", "glovebox-core", "glovebox-proto", "glovebox-guest"]),
    (
        "glovebox-docker",
        &["glovebox-archive", "glovebox-core", "glovebox-embedded-guest", "glovebox-guest", "glovebox-proto"],
    ),
    ("glovebox-ledger", &["glovebox-core"]),
    (
        "glovebox-engine",
        &["glovebox-archive", "glovebox-core", "glovebox-proto", "glovebox-ledger", "glovebox-terminal"],
    ),
    ("glovebox-changes", &["glovebox-core", "glovebox-ledger"]),
    ("glovebox-mcp", &["glovebox-changes", "glovebox-core", "glovebox-engine", "glovebox-ledger"]),
    (
        "glovebox-cli",
        &[
            "glovebox-changes",
            "glovebox-core",
            "glovebox-docker",
            "glovebox-engine",
            "glovebox-ledger",
            "glovebox-mcp",
            "glovebox-native",
            "glovebox-probe",
            "glovebox-terminal",
        ],
    ),
];

/// The page that explains each dependency.
const EXPLAINED_IN: &str = "docs/decisions/dependencies.md";

pub(super) fn dependencies_point_down(files: &[SourceFile]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (file, manifest) in manifests(files).filter(|(file, _)| file.path.starts_with("crates/")) {
        let folder = file.path.split('/').nth(1).unwrap_or_default();
        let name = manifest.get("package").and_then(|p| p.get("name")).and_then(Value::as_str).unwrap_or_default();
        if folder != name {
            offences.push(Offence::new(&file.path, 0, format!("the folder {folder} holds the crate {name}")));
        }
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(known, _)| *known == name) else {
            offences.push(Offence::new(&file.path, 0, format!("{name} has no place in the table of xtask's tidy")));
            continue;
        };
        for section in ["dependencies", "build-dependencies"] {
            let table = manifest.get(section).and_then(Value::as_table);
            let ours = table.into_iter().flat_map(Table::keys).filter(|key| key.starts_with("glovebox-"));
            for key in ours.filter(|key| !allowed.contains(&key.as_str())) {
                offences.push(Offence::new(&file.path, 0, format!("{name} must not know {key}")));
            }
        }
    }
    offences
}

pub(super) fn crates_inherit_lints(files: &[SourceFile]) -> Vec<Offence> {
    let inherits =
        |manifest: &Table| manifest.get("lints").and_then(|l| l.get("workspace")) == Some(&Value::Boolean(true));
    manifests(files)
        .filter(|(file, manifest)| manifest.contains_key("package") && !file.path.starts_with("fuzz/"))
        .filter(|(_, manifest)| !inherits(manifest))
        .map(|(file, _)| Offence::new(&file.path, 0, "[lints] workspace = true is missing"))
        .collect()
}

pub(super) fn dependencies_are_explained(files: &[SourceFile]) -> Vec<Offence> {
    let page = files.iter().find(|file| file.path == EXPLAINED_IN).map_or("", |file| &file.text);
    let root = manifests(files).find(|(file, _)| file.path == "Cargo.toml");
    let table = root.as_ref().and_then(|(_, m)| m.get("workspace")?.get("dependencies")?.as_table());
    let others = table.into_iter().flat_map(Table::keys).filter(|key| !key.starts_with("glovebox-"));
    others
        .filter(|key| !page.contains(&format!("`{key}`")))
        .map(|key| Offence::new("Cargo.toml", 0, format!("{EXPLAINED_IN} does not say what {key} is for")))
        .collect()
}

fn manifests(files: &[SourceFile]) -> impl Iterator<Item = (&SourceFile, Table)> {
    let manifests = files.iter().filter(|file| file.path.rsplit('/').next() == Some("Cargo.toml"));
    manifests.filter_map(|file| Some((file, file.text.parse::<Table>().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::file, *};

    #[test]
    fn a_dependency_that_points_up_is_an_offence_and_a_test_may_point_anywhere() {
        let path = "crates/glovebox-core/Cargo.toml";
        let up = "[package]\nname = \"glovebox-core\"\n[dependencies]\nglovebox-engine = { path = \"x\" }\n";
        assert_eq!(dependencies_point_down(&[file(path, up)]).len(), 1);
        assert!(dependencies_point_down(&[file(path, &up.replace("[dep", "[dev-dep"))]).is_empty());
        let unknown = "[package]\nname = \"glovebox-new\"\n";
        assert_eq!(dependencies_point_down(&[file("crates/glovebox-new/Cargo.toml", unknown)]).len(), 1);
    }

    #[test]
    fn a_line_of_the_table_only_names_lines_above_it() {
        for (at, (name, known)) in MAY_KNOW.iter().enumerate() {
            let above: Vec<&str> = MAY_KNOW[..at].iter().map(|(name, _)| *name).collect();
            assert!(known.iter().all(|other| above.contains(other)), "{name}");
        }
    }

    #[test]
    fn a_crate_without_the_lints_and_a_dependency_without_a_reason_are_offences() {
        let bare = file("crates/a/Cargo.toml", "[package]\nname = \"a\"\n");
        assert_eq!(crates_inherit_lints(&[bare]).len(), 1);
        let root = file("Cargo.toml", "[workspace.dependencies]\nserde = \"1\"\nglovebox-core = \"1\"\n");
        assert_eq!(dependencies_are_explained(std::slice::from_ref(&root)).len(), 1);
        assert!(dependencies_are_explained(&[root, file(EXPLAINED_IN, "| `serde` | why |\n")]).is_empty());
    }
}
