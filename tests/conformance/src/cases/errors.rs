//! What Glovebox itself could not do: a stable code, nothing started, nothing left.

use glovebox_core::{Access, ErrorCode, Layer, RunResult, WorkspaceMode};

use crate::{World, case::cases};

const WORK: &str = "/workspace/agent_workspace";

cases!["errors":
    a_program_that_is_not_there_is_command_not_found,
    a_program_of_a_missing_path_is_command_not_found,
    a_file_without_the_right_to_execute_is_command_not_executable,
    a_folder_and_a_broken_format_are_command_not_executable,
    a_missing_interpreter_is_an_error,
    a_working_directory_that_is_not_there_is_workdir_unusable,
    a_working_directory_that_is_a_file_is_workdir_unusable,
    a_workspace_that_is_not_there_is_file_not_found,
    a_workspace_that_is_a_file_is_not_a_directory,
    a_mount_source_that_is_not_there_is_file_not_found,
    a_mount_target_that_cannot_be_made_is_an_error,
    an_input_file_that_is_not_there_is_file_not_found,
    an_input_file_may_not_go_into_the_systems_own_folders,
    bad_names_and_values_of_variables_are_refused,
    an_empty_command_and_arguments_with_nul_are_refused,
    arguments_that_are_too_long_are_an_error,
    a_layer_that_is_asked_for_and_missing_is_an_error,
    a_bad_glob_for_artifacts_is_an_error,
];

#[track_caller]
fn code_of(result: glovebox_core::Result<RunResult>) -> ErrorCode {
    match result {
        Ok(result) => panic!("expected an error, got {:?}", result.outcome),
        Err(error) => {
            assert!(!error.message.is_empty());
            error.code
        }
    }
}

async fn a_program_that_is_not_there_is_command_not_found(w: World) {
    let result = w.sandbox().try_run(["no-such-program"]).await;
    let error = result.expect_err("it is not there");
    assert_eq!(error.code, ErrorCode::CommandNotFound);
    assert!(error.message.contains("no-such-program"), "{}", error.message);
}

async fn a_program_of_a_missing_path_is_command_not_found(w: World) {
    assert_eq!(code_of(w.sandbox().try_run(["/no/such/program"]).await), ErrorCode::CommandNotFound);
    assert_eq!(code_of(w.sandbox().try_run(["./missing"]).await), ErrorCode::CommandNotFound);
}

async fn a_file_without_the_right_to_execute_is_command_not_executable(w: World) {
    let setup = w.sandbox().file(&format!("{WORK}/plain"), "#!/bin/sh\n", 0o644);
    assert_eq!(code_of(setup.try_run(["./plain"]).await), ErrorCode::CommandNotExecutable);
}

async fn a_folder_and_a_broken_format_are_command_not_executable(w: World) {
    assert_eq!(code_of(w.sandbox().try_run(["/tmp"]).await), ErrorCode::CommandNotExecutable);
    let setup = w.sandbox().file(&format!("{WORK}/junk"), vec![1u8, 2, 3, 4], 0o755);
    assert_eq!(code_of(setup.try_run(["./junk"]).await), ErrorCode::CommandNotExecutable);
}

async fn a_missing_interpreter_is_an_error(w: World) {
    let setup = w.sandbox().file(&format!("{WORK}/script"), "#!/no/such/interpreter\n", 0o755);
    let code = code_of(setup.try_run(["./script"]).await);
    assert!(matches!(code, ErrorCode::CommandNotFound | ErrorCode::CommandNotExecutable), "{code}");
}

async fn a_working_directory_that_is_not_there_is_workdir_unusable(w: World) {
    assert_eq!(code_of(w.sandbox().cwd("/no/such/folder").try_run(["true"]).await), ErrorCode::WorkdirUnusable);
}

async fn a_working_directory_that_is_a_file_is_workdir_unusable(w: World) {
    assert_eq!(code_of(w.sandbox().cwd("/etc/passwd").try_run(["true"]).await), ErrorCode::WorkdirUnusable);
}

async fn a_workspace_that_is_not_there_is_file_not_found(w: World) {
    for mode in [WorkspaceMode::Overlay, WorkspaceMode::ReadOnly, WorkspaceMode::ReadWrite] {
        let missing = w.folder("here").join("missing");
        let setup = w.sandbox().workspace(&missing, mode);
        assert_eq!(code_of(setup.try_run(["true"]).await), ErrorCode::FileNotFound, "{mode:?}");
    }
}

async fn a_workspace_that_is_a_file_is_not_a_directory(w: World) {
    let file = w.host_file("file", "x");
    let setup = w.sandbox().workspace(&file, WorkspaceMode::Overlay);
    assert_eq!(code_of(setup.try_run(["true"]).await), ErrorCode::NotADirectory);
}

async fn a_mount_source_that_is_not_there_is_file_not_found(w: World) {
    let missing = w.folder("here").join("missing");
    let setup = w.sandbox().mount(&missing, "/data", Access::ReadOnly);
    assert_eq!(code_of(setup.try_run(["true"]).await), ErrorCode::FileNotFound);
}

async fn a_mount_target_that_cannot_be_made_is_an_error(w: World) {
    let folder = w.folder("data");
    for target in ["/usr/no/such/place", "/opt/data"] {
        let setup = w.sandbox().mount(&folder, target, Access::ReadOnly);
        let code = code_of(setup.try_run(["true"]).await);
        assert!(matches!(code, ErrorCode::InvalidMount | ErrorCode::SandboxSetup), "{target}: {code}");
    }
}

async fn an_input_file_that_is_not_there_is_file_not_found(w: World) {
    let missing = w.folder("here").join("missing");
    let setup = w.sandbox().host_file(&format!("{WORK}/copy"), missing, 0o644);
    assert_eq!(code_of(setup.try_run(["true"]).await), ErrorCode::FileNotFound);
}

async fn an_input_file_may_not_go_into_the_systems_own_folders(w: World) {
    for target in ["/proc/self/comm", "/usr/bin/evil", "/etc/passwd"] {
        let setup = w.sandbox().file(target, "x", 0o644);
        assert!(setup.try_run(["true"]).await.is_err(), "{target} was written");
    }
}

async fn bad_names_and_values_of_variables_are_refused(w: World) {
    for (name, value) in [("", "x"), ("A=B", "x"), ("A\nB", "x"), ("A\0", "x"), ("A", "x\0y")] {
        let result = w.sandbox().env(name, value).try_run(["true"]).await;
        assert_eq!(code_of(result), ErrorCode::InvalidEnvironment, "{name:?}={value:?}");
    }
}

async fn an_empty_command_and_arguments_with_nul_are_refused(w: World) {
    assert_eq!(code_of(w.sandbox().try_run([]).await), ErrorCode::Usage);
    assert_eq!(code_of(w.sandbox().try_run([""]).await), ErrorCode::CommandNotFound);
    assert_eq!(code_of(w.sandbox().try_run(["echo", "a\0b"]).await), ErrorCode::InvalidValue);
}

async fn arguments_that_are_too_long_are_an_error(w: World) {
    let long = "x".repeat(1 << 20);
    let result = w.sandbox().try_run(["echo", &long]).await;
    assert!(result.is_err(), "the kernel takes 128 KiB an argument");
    w.sandbox().run(["echo", &"x".repeat(100_000)]).await.expect_exit(0);
}

async fn a_layer_that_is_asked_for_and_missing_is_an_error(w: World) {
    let setup = w.sandbox().network_full().require(Layer::NetworkNs);
    assert_eq!(code_of(setup.try_run(["true"]).await), ErrorCode::LayerMissing);
    w.sandbox().require(Layer::NetworkNs).require(Layer::Seccomp).run(["true"]).await.expect_exit(0);
}

async fn a_bad_glob_for_artifacts_is_an_error(w: World) {
    assert_eq!(code_of(w.sandbox().artifact("outputs/[").try_run(["true"]).await), ErrorCode::InvalidValue);
}
