//! Cases about what not every backend with namespaces gives.
// tidy: table

use glovebox_core::Features;

/// Why cases are skipped, whether a backend is of the kind that they are about, and their functions' names.
pub(crate) type About = (&'static str, fn(&Features) -> bool, &'static [&'static str]);

/// Where the backend is of another kind these are skipped, and counted so.
pub(crate) const OF_BACKENDS: &[About] = &[
    (
        "the backend does not declare host_image",
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
        "the backend does not declare own_root",
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
        "the backend does not declare one_store",
        |features| features.one_store,
        &["files_do_not_count_as_memory", "all_folders_that_can_be_written_share_one_disk_limit"],
    ),
    (
        "the backend does not declare disk_limit",
        |features| features.disk_limit,
        &[
            "files_that_are_deleted_while_open_count_in_a_living_sandbox",
            "what_lies_in_very_deep_folders_counts_in_a_living_sandbox",
            "a_daemon_that_goes_on_writing_is_ended_at_the_disk_limit",
            "what_a_sandbox_uses_is_told_while_it_runs",
            "what_is_written_is_held_to_the_disk_limit_and_room_can_be_made",
            "a_look_at_the_disk_is_over_when_its_answer_comes",
        ],
    ),
    (
        "the backend does not declare idmapped_mounts",
        |features| features.idmapped_mounts,
        &["a_read_write_workspace_writes_to_the_host_as_its_owner"],
    ),
    (
        "the backend does not declare own_ids",
        |features| features.own_ids,
        &["what_one_sandbox_hoards_is_missing_neither_to_the_host_nor_to_another"],
    ),
    (
        "the backend does not declare network_full",
        |features| features.network_full,
        &["a_layer_that_is_asked_for_and_missing_is_an_error"],
    ),
    (
        "the backend does not declare mounts",
        |features| features.mounts,
        &[
            "a_living_sandbox_is_held_to_the_size_of_its_volume",
            "a_sandbox_starts_again_whatever_is_in_the_way_of_its_mounts",
            "a_reset_keeps_volumes_and_files_of_the_project",
            "files_added_to_a_project_appear_in_a_living_sandbox_and_cannot_be_changed",
            "what_was_left_half_removed_is_finished_by_the_next_sandbox",
            "a_sandbox_whose_folders_are_gone_can_be_destroyed",
        ],
    ),
    (
        "the backend declares neither mounts nor volumes_elsewhere",
        |features| features.mounts || features.volumes_elsewhere,
        &[
            "living_sandboxes_share_a_volume_at_the_same_time",
            "a_volume_that_a_sandbox_has_stays_and_the_error_names_it",
            "a_volume_with_hostile_content_is_removed_and_nothing_else",
        ],
    ),
    (
        "the backend does not declare host_folders",
        |features| features.host_folders,
        &[
            "no_setuid_program_reaches_a_folder_of_the_host",
            "many_files_in_a_read_write_folder_are_watched",
            "what_lies_in_very_deep_folders_is_watched",
            "a_mount_within_a_workspace_hides_what_is_there_and_is_not_touched",
            "a_file_in_a_read_write_workspace_cannot_outgrow_the_disk_limit",
            "a_read_write_workspace_that_outgrows_the_disk_limit_is_watched_and_ended",
            "files_that_are_deleted_while_open_count_in_a_read_write_workspace",
            "nobody_watches_the_workspace_of_a_run_that_is_over",
            "a_read_write_folder_reaches_the_host_with_its_owner",
            "a_single_file_can_be_mounted_for_writing",
            "a_read_write_workspace_of_another_owner_gives_files_that_owner",
        ],
    ),
    (
        "the backend does not declare counters",
        |features| features.counters,
        &[
            "what_a_sandbox_for_some_runs_uses_is_told_too",
            "a_fork_bomb_is_told_of",
            "refused_threads_are_told_of",
            "a_paused_sandbox_gives_back_the_cache_of_its_files",
        ],
    ),
    (
        "the backend does not declare group_namespace",
        |features| features.group_namespace,
        &["the_cgroup_namespace_is_its_own_and_hides_the_paths_of_the_host"],
    ),
    (
        "the backend does not declare inode_limit",
        |features| features.inode_limit,
        &["a_workspace_that_does_not_fit_is_not_copied"],
    ),
    (
        "the backend does not declare host_kernel",
        |features| features.host_kernel,
        &[
            "the_mount_namespace_is_its_own",
            "the_process_namespace_is_its_own_and_its_first_process_is_the_guest",
            "the_network_namespace_is_its_own",
            "the_ipc_namespace_is_its_own",
            "the_uts_namespace_is_its_own_and_the_host_name_stays_outside",
            "the_device_folder_holds_only_harmless_devices",
            "commands_hold_no_capability_even_as_root_inside",
            "no_new_privileges_can_be_gained",
            "resource_limits_are_set_and_cannot_be_raised",
            "the_root_file_system_cannot_be_written",
            "temporary_files_are_private_and_gone_with_the_sandbox",
            "files_are_copied_in_with_their_bytes_and_modes",
            "files_that_are_copied_in_belong_to_the_user",
            "files_that_were_only_read_are_no_changes",
            "a_folder_that_was_deleted_and_made_again_hides_its_old_files",
            "an_overlay_workspace_belongs_to_the_user_inside",
            "a_terminal_is_a_terminal_of_the_size_asked_for",
            "a_terminal_that_is_resized_tells_the_program",
            "the_interrupt_key_ends_the_program_in_the_foreground",
            "keys_are_echoed_and_the_end_of_input_key_ends_input",
            "a_program_may_close_its_terminal_and_open_it_again",
            "to_look_at_a_paused_sandbox_finds_no_cpu_used",
            "what_a_sandbox_for_some_runs_uses_is_told_too",
            "what_lies_in_memory_and_in_tmp_is_gone_after_a_stop",
            "the_end_that_is_told_is_the_one_that_comes_first",
            "a_file_that_is_written_belongs_to_the_user_and_has_its_mode",
            "a_write_keeps_the_mode_of_the_file_that_it_replaces",
            "a_write_replaces_a_link_and_not_what_it_leads_to",
            "the_kernels_own_files_are_refused_however_they_are_reached",
            "a_file_that_a_program_holds_by_a_lease_keeps_nobody_waiting",
            "processes_and_threads_work",
            "ordinary_file_operations_work",
            "processes_can_be_watched_moved_and_made_nice",
            "a_daemon_that_double_forks_does_not_outlive_its_run",
            "a_daemon_that_holds_the_output_open_does_not_hold_up_the_end_of_its_run",
            "a_start_that_is_given_up_at_any_moment_leaves_nothing",
            "who_gives_up_a_look_at_a_stopped_sandbox_keeps_it_from_nothing",
        ],
    ),
    (
        "the backend has files_through_guest",
        |features| !features.files_through_guest,
        &[
            "nothing_moves_in_a_paused_sandbox_and_it_goes_on_where_it_was",
            "a_sandbox_on_a_full_disk_runs_and_is_followed_stopped_and_destroyed",
        ],
    ),
    (
        "the backend does not declare ends_later",
        |features| features.ends_later,
        &[
            "a_sandbox_that_cannot_be_stopped_says_why_and_is_stopped_later",
            "a_sandbox_that_cannot_be_destroyed_says_why_and_is_removed_later",
            "whoever_makes_the_next_sandbox_removes_one_that_could_not_be_destroyed",
        ],
    ),
    (
        "the backend does not declare guest_outlives_pause",
        |features| features.guest_outlives_pause,
        &[
            "a_paused_sandbox_that_is_too_old_ends",
            "a_run_of_a_paused_sandbox_is_cancelled_and_nothing_else_moves",
            "whoever_follows_a_paused_run_can_end_it",
            "one_that_was_killed_just_before_a_pause_ends",
            "one_that_holds_a_sandbox_starts_nothing_in_it_while_it_is_paused",
            "a_sandbox_starts_commands_again_whose_pause_was_ended_by_half",
            "a_keeper_without_descriptors_turns_others_away_and_keeps_its_sandbox",
        ],
    ),
];
