//! Variables of the caller that look like ours and set nothing.

use std::collections::BTreeSet;

use crate::{args, later, report, slips};

/// Says which variables named `GLOVEBOX_…` are not known. A misspelt limit that is silently not in force is worse than
/// a line too many.
pub(crate) fn warn_of_unknown() {
    let ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours: Vec<String> = ours.filter(|name| name.starts_with("GLOVEBOX_")).collect();
    // Most callers set none, or those that every verb has. To describe all verbs takes longer than to run something.
    if ours.iter().all(|name| args::is_global_variable(name)) {
        return;
    }
    let known = known();
    for name in ours.iter().filter(|name| !known.contains(*name)) {
        report::say(&format!("the variable {name:?} sets nothing: {}", advice(name, &known)));
    }
}

/// The variables of all flags.
fn known() -> BTreeSet<String> {
    let command = args::command();
    let verbs = || command.get_subcommands();
    let all = std::iter::once(&command).chain(verbs()).chain(verbs().flat_map(clap::Command::get_subcommands));
    let names = all.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_env);
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

fn advice(name: &str, known: &BTreeSet<String>) -> String {
    let flag = name.trim_start_matches("GLOVEBOX_").to_ascii_lowercase().replace('_', "-");
    if later::has_flag(&flag) {
        return format!("--{flag} comes with a later version");
    }
    // The beginning is the same in all names and says nothing about how alike they are.
    let flags = known.iter().map(|other| other["GLOVEBOX_".len()..].to_ascii_lowercase().replace('_', "-"));
    match slips::nearest(&flag, flags) {
        Some(other) => format!("did you mean {}?", args::variable(&other)),
        None => "no flag has this name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_where_one_is_near() {
        let known = known();
        assert_eq!(advice("GLOVEBOX_MEMROY", &known), "did you mean GLOVEBOX_MEMORY?");
        assert_eq!(advice("GLOVEBOX_OUTPUTLIMIT", &known), "did you mean GLOVEBOX_OUTPUT_LIMIT?");
        assert_eq!(advice("GLOVEBOX_ALLOW", &known), "--allow comes with a later version");
        assert_eq!(advice("GLOVEBOX_XYZZY", &known), "no flag has this name");
    }
}
