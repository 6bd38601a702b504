//! Cases about what not every backend with namespaces gives.
// tidy: table

use glovebox_core::Features;

/// A feature by its name, whether a backend has it, and the cases about it by the names of their functions.
pub(crate) type About = (&'static str, fn(&Features) -> bool, &'static [&'static str]);

/// Where the backend does not declare the feature these are skipped, and counted so.
pub(crate) const OF_BACKENDS: &[About] = &[
    (
        "host_image",
        |features| features.host_image,
        &[
            "a_compiler_of_the_host_builds_a_program",
            "the_compiler_is_in_the_sandbox_with_its_layers_and_limits",
            "a_program_that_is_made_of_more_than_its_source_is_not_kept",
            "neither_variables_nor_secrets_of_the_caller_reach_the_compiler",
            "a_figure_comes_back_as_a_picture_and_as_numbers",
            "a_table_comes_back_as_text_html_and_data",
        ],
    ),
    (
        "own_root",
        |features| features.own_root,
        &[
            "every_layer_that_the_host_can_give_is_listed_as_present",
            "setuid_programs_gain_nothing",
            "group_paths_of_the_host_are_not_seen",
            "folders_of_the_host_that_are_not_allowed_are_not_there",
            "host_paths_do_not_show_in_the_mount_table",
            "a_mount_target_that_cannot_be_made_is_an_error",
        ],
    ),
    (
        "one_store",
        |features| features.one_store,
        &["files_do_not_count_as_memory", "all_folders_that_can_be_written_share_one_disk_limit"],
    ),
];
