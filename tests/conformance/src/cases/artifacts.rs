//! Files that are kept from a run, hostile ones included.

use std::fs;

use crate::{World, case::cases, finished::Finished};

/// SHA-256 of "hello\n".
const HELLO_SHA256: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

cases!["artifacts":
    what_lies_in_the_outputs_folder_is_always_kept,
    files_that_match_a_glob_are_kept_and_others_are_not,
    artifacts_are_kept_when_the_program_fails,
    an_empty_and_a_large_artifact_are_kept_whole,
    links_among_the_outputs_are_never_followed,
    pipes_sockets_and_devices_among_the_outputs_never_hang_the_end,
    hostile_names_stay_inside_the_artifact_folder,
    a_file_that_the_user_made_unreadable_does_not_break_the_end,
    globs_that_climb_out_of_the_workspace_keep_nothing,
    a_run_without_outputs_leaves_no_folder,
];

/// The bytes of an artifact as they were kept on the host.
fn kept(w: &World, run: &Finished, path: &str) -> Vec<u8> {
    fs::read(w.engine().artifact_dir(run.run).join(path)).expect("the artifact is on the host")
}

fn paths(run: &Finished) -> Vec<&str> {
    run.artifacts.iter().map(|artifact| artifact.path.as_str()).collect()
}

async fn what_lies_in_the_outputs_folder_is_always_kept(w: World) {
    let line = "mkdir -p /workspace/outputs/deep; echo hello > /workspace/outputs/deep/a.txt; echo x > scrap";
    let run = w.sandbox().sh(line).await.expect_exit(0);
    assert_eq!(paths(&run), ["outputs/deep/a.txt"]);
    assert_eq!((run.artifacts[0].bytes, run.artifacts[0].sha256.as_str()), (6, HELLO_SHA256));
    assert_eq!(kept(&w, &run, "outputs/deep/a.txt"), b"hello\n");
}

async fn files_that_match_a_glob_are_kept_and_others_are_not(w: World) {
    let line = "mkdir -p a/b; for f in x.txt x.log a/y.txt a/b/z.txt; do echo $f > $f; done";
    let setup = w.sandbox().artifact("agent_workspace/**/*.txt").artifact("agent_workspace/x.l?g");
    let run = setup.sh(line).await.expect_exit(0);
    let mut found = paths(&run);
    found.sort_unstable();
    let expected =
        ["agent_workspace/a/b/z.txt", "agent_workspace/a/y.txt", "agent_workspace/x.log", "agent_workspace/x.txt"];
    assert_eq!(found, expected);
    let run = w.sandbox().artifact("agent_workspace/*.nothing").sh(line).await.expect_exit(0);
    assert!(run.artifacts.is_empty());
}

async fn artifacts_are_kept_when_the_program_fails(w: World) {
    let run = w.sandbox().timeout("300ms").grace("100ms").sh("echo hello > ../outputs/log; sleep 60").await;
    assert_eq!(paths(&run), ["outputs/log"]);
    assert_eq!(kept(&w, &run, "outputs/log"), b"hello\n");
}

async fn an_empty_and_a_large_artifact_are_kept_whole(w: World) {
    let run = w.sandbox().sh("cd ../outputs; : > empty; head -c 20000000 /dev/zero > large").await.expect_exit(0);
    assert_eq!(paths(&run), ["outputs/empty", "outputs/large"]);
    assert_eq!(kept(&w, &run, "outputs/empty").len(), 0);
    assert_eq!(kept(&w, &run, "outputs/large").len(), 20_000_000);
}

async fn links_among_the_outputs_are_never_followed(w: World) {
    let line = "cd ../outputs; ln -s /etc/passwd file; ln -s / tree; ln -s /proc/self/environ env; echo x > real; \
                ln real hard; ln -s ../../../../../../etc/passwd up; ln -s loop loop";
    let run = w.sandbox().env("TELLTALE", "telltale").sh(line).await.expect_exit(0);
    let regular: Vec<&str> =
        paths(&run).into_iter().filter(|path| !["outputs/hard", "outputs/real"].contains(path)).collect();
    assert!(regular.is_empty(), "{regular:?} were kept");
    let folder = w.engine().artifact_dir(run.run);
    for name in ["file", "tree", "env", "up", "loop"] {
        assert!(fs::symlink_metadata(folder.join("outputs").join(name)).is_err(), "{name} is on the host");
    }
}

async fn pipes_sockets_and_devices_among_the_outputs_never_hang_the_end(w: World) {
    let line = "cd ../outputs; mkfifo pipe; mkfifo deep.txt; (exec 3<>pipe; sleep 0.01) & wait; echo hello > real";
    let run = w.sandbox().timeout("10s").artifact("**").sh(line).await.expect_exit(0);
    assert_eq!(paths(&run), ["outputs/real"]);
    assert!(run.duration_ms < 5000.0, "{}", run.story());
}

async fn hostile_names_stay_inside_the_artifact_folder(w: World) {
    let line = "cd ../outputs; echo 1 > '..x'; echo 2 > 'new\nline'; echo 3 > \"$(printf 'bad\\377byte')\"; \
                echo 4 > '-rf'; echo 5 > '...'; echo 6 > 'a b;$(touch x)'; mkdir -p 'C:\\x'; echo 7 > 'C:\\x/f'";
    let run = w.sandbox().sh(line).await.expect_exit(0);
    assert!(run.artifacts.len() >= 5, "{:?}", paths(&run));
    let folder = w.engine().artifact_dir(run.run);
    for artifact in &run.artifacts {
        assert!(!artifact.path.split('/').any(|part| part == ".."), "{:?}", artifact.path);
        assert!(fs::symlink_metadata(folder.join(&artifact.path)).is_ok_and(|facts| facts.is_file()), "{artifact:?}");
    }
}

async fn a_file_that_the_user_made_unreadable_does_not_break_the_end(w: World) {
    let line = "cd ../outputs; echo hello > open; echo x > shut; chmod 000 shut; mkdir closed; echo y > closed/f; \
                chmod 000 closed";
    let run = w.sandbox().sh(line).await.expect_exit(0);
    assert!(paths(&run).contains(&"outputs/open"), "{:?}", paths(&run));
}

async fn globs_that_climb_out_of_the_workspace_keep_nothing(w: World) {
    for glob in ["../etc/*", "/etc/*", "outputs/../../etc/passwd"] {
        // To refuse the glob is as good as to find nothing.
        if let Ok(result) = w.sandbox().artifact(glob).try_run(["true"]).await {
            assert!(result.artifacts.is_empty(), "{glob} kept {:?}", result.artifacts);
        }
    }
}

async fn a_run_without_outputs_leaves_no_folder(w: World) {
    let run = w.sandbox().sh("echo nothing to keep").await.expect_exit(0);
    assert!(!w.engine().artifact_dir(run.run).exists());
}
