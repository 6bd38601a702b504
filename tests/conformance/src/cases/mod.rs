//! The cases, a file for each group.

mod artifacts;
mod attacks;
mod bare;
mod change_records;
mod clients;
mod compatibility;
mod compile;
mod descriptors;
mod errors;
mod file_archives;
mod file_contents;
mod file_folders;
mod file_watch;
mod files;
mod full_disk;
mod ids;
mod io;
mod languages;
mod layers;
mod leaks;
mod liars;
mod library;
mod limits_disk;
mod limits_memory;
mod limits_output;
mod limits_processes;
mod limits_time;
mod living;
mod mounts;
mod network;
mod of_backends;
mod of_namespaces;
mod ordinary;
mod outcomes;
mod pauses;
mod refusals;
mod run_changes;
mod run_groups;
mod runs;
mod secrets;
mod session_ends;
mod sessions;
mod states;
mod storage;
mod stuck;
mod substitutes;
mod terminal;
mod terminals;
mod usage;
mod volumes_elsewhere;
mod workspace;

pub(crate) use compatibility::rust_toolchain;
pub(crate) use of_backends::OF_BACKENDS;
pub(crate) use of_namespaces::OF_NAMESPACES;

use crate::Case;

/// Every case, in the order in which they run.
pub fn all() -> impl Iterator<Item = Case> {
    [
        layers::CASES,
        limits_memory::CASES,
        limits_processes::CASES,
        substitutes::CASES,
        limits_disk::CASES,
        limits_time::CASES,
        limits_output::CASES,
        outcomes::CASES,
        refusals::CASES,
        ordinary::CASES,
        leaks::CASES,
        files::CASES,
        workspace::CASES,
        mounts::CASES,
        artifacts::CASES,
        io::CASES,
        errors::CASES,
        languages::CASES,
        compile::CASES,
        compatibility::CASES,
        terminal::CASES,
        terminals::CASES,
        usage::CASES,
        run_groups::CASES,
        run_changes::CASES,
        change_records::CASES,
        secrets::CASES,
        session_ends::CASES,
        sessions::CASES,
        network::CASES,
        library::CASES,
        living::CASES,
        states::CASES,
        pauses::CASES,
        stuck::CASES,
        descriptors::CASES,
        full_disk::CASES,
        ids::CASES,
        storage::CASES,
        volumes_elsewhere::CASES,
        runs::CASES,
        clients::CASES,
        liars::CASES,
        file_contents::CASES,
        file_folders::CASES,
        file_archives::CASES,
        file_watch::CASES,
        attacks::CASES,
        bare::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_of_namespaces_is_a_case() {
        for function in super::OF_NAMESPACES {
            assert!(super::all().any(|case| case.function == *function), "{function}");
        }
    }

    #[test]
    fn every_case_has_a_sentence_of_its_own() {
        let mut names: Vec<String> = super::all().map(|case| case.name()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
