//! Bad input: a clear error with a stable code, nothing started, nothing left.

use std::os::unix::fs::symlink;

use crate::Bench;

#[test]
fn limits_of_zero_below_zero_and_nonsense_are_refused() {
    let bench = Bench::new();
    for flag in
        ["--memory", "--cpus", "--pids", "--disk", "--inodes", "--open-files", "--timeout", "--grace", "--output-limit"]
    {
        for value in ["0", "-1", "-1g", "lots", ""] {
            let called = bench.call(["run", flag, value, "--", "true"]);
            assert_eq!(called.code, 2, "{flag} {value:?}");
            assert!(called.stdout.is_empty());
            for part in [flag, &format!("{value:?}"), "expected", "[invalid_value]"] {
                assert!(called.stderr.contains(part), "{flag} {value:?} does not say {part}: {}", called.stderr);
            }
        }
    }
}

#[test]
fn unknown_flags_and_verbs_are_refused() {
    let bench = Bench::new();
    bench.write("a.py", "");
    for args in [&["run", "--bogus", "a.py"][..], &["frobnicate"], &["run"], &["run", "--"], &["gc", "x"], &["--bogus"]]
    {
        let called = bench.call(args);
        assert_eq!(called.code, 2, "{args:?}: {}", called.stderr);
        assert!(
            called.stderr.starts_with("glovebox: error: ") && called.stderr.contains("[usage]"),
            "{}",
            called.stderr
        );
        assert!(called.stdout.is_empty());
    }
}

#[test]
fn what_a_later_version_brings_is_said_plainly() {
    let bench = Bench::new();
    bench.write("a.py", "");
    for (args, what) in [
        (&["snapshot", "x"][..], "glovebox snapshot"),
        (&["serve"], "glovebox serve"),
        (&["run", "--allow", "example.com", "a.py"], "--allow"),
        (&["--server", "x", "run", "a.py"], "--server"),
    ] {
        let called = bench.call(args);
        assert_eq!(called.code, 2, "{args:?}");
        let line = format!("glovebox: error: {what} comes with a later version [usage]\n");
        assert!(called.stderr.starts_with(&line) && !called.stderr.contains("similar"), "{}", called.stderr);
    }
    bench.write("glovebox.toml", "allow = ['example.com']");
    let called = bench.call(["run", "a.py"]);
    assert_eq!(called.code, 2);
    assert!(called.stderr.contains("later version") && called.stderr.contains("glovebox.toml"), "{}", called.stderr);
}

#[test]
fn a_file_in_place_of_a_verb_is_told_the_verb() {
    let bench = Bench::new();
    bench.write("a.py", "");
    let called = bench.call(["a.py", "x"]);
    assert_eq!(called.code, 2);
    assert!(called.stderr.contains("glovebox run a.py") && called.stderr.contains("[usage]"), "{}", called.stderr);
}

#[test]
fn names_that_would_steer_the_terminal_are_shown_and_not_sent() {
    let bench = Bench::new();
    let called = bench.call(["run", "\u{1b}[2J.py"]);
    assert_eq!(called.code, 125);
    assert!(called.stderr.contains("\\u{1b}[2J.py") && !called.stderr.contains('\u{1b}'), "{}", called.stderr);
}

#[test]
fn the_mode_of_a_mount_that_is_misspelt_is_told_with_the_forms() {
    let bench = Bench::new();
    bench.write("data/x", "");
    let called = bench.call(["run", "--mount", "data:/data:wr", "--", "true"]);
    assert_eq!(called.code, 2);
    for part in ["\"wr\"", "ro or rw", "SRC:DST:rw", "[invalid_mount]"] {
        assert!(called.stderr.contains(part), "{part}: {}", called.stderr);
    }
}

#[test]
fn a_usage_error_is_a_json_document_when_json_is_asked_for() {
    let bench = Bench::new();
    assert_eq!(bench.error(&["--bogus", "--", "true"]), ("usage".into(), 2));
    assert_eq!(bench.error(&["--memory", "0", "--", "true"]), ("invalid_value".into(), 2));
    let called = bench.call(["--json", "frobnicate"]);
    assert_eq!((called.code, called.document()["error"]["code"].as_str()), (2, Some("usage")));
}

#[test]
fn files_that_are_not_there_or_of_the_wrong_kind_are_named() {
    let bench = Bench::new();
    bench.write("file.txt", "x");
    symlink("loop", bench.work().join("loop")).unwrap();
    let cases: [(&[&str], &str); 14] = [
        (&["missing.py"], "file_not_found"),
        (&["file.txt/x.py"], "file_not_found"),
        (&["."], "file_unreadable"),
        (&["loop"], "file_unreadable"),
        (&["/dev/null"], "file_unreadable"),
        (&["--workspace", "missing", "--", "true"], "file_not_found"),
        (&["--workspace", "file.txt", "--", "true"], "not_a_directory"),
        (&["--mount", "missing:/data", "--", "true"], "file_not_found"),
        (&["--mount", "loop:/data", "--", "true"], "file_unreadable"),
        (&["--file", "missing", "--", "true"], "file_not_found"),
        (&["--file", "/dev/zero", "--", "true"], "file_unreadable"),
        (&["--env-file", "missing", "--", "true"], "file_not_found"),
        (&["--stdin", "missing", "--", "true"], "file_not_found"),
        (&["--stdin", ".", "--", "true"], "file_unreadable"),
    ];
    for (args, code) in cases {
        assert_eq!(bench.error(args), (code.to_owned(), 125), "{args:?}");
    }
}

#[test]
fn pipes_devices_and_huge_files_are_never_read_as_settings() {
    let bench = Bench::new();
    let fifo = bench.work().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    bench.write("huge", vec![b'#'; (1 << 20) + 1]);
    for (file, why) in [("fifo", "ordinary"), ("/dev/zero", "ordinary"), ("huge", "1 MiB"), (".", "folder")] {
        for (flag, value, code, exit) in [
            ("--secret", format!("X=file:{file}"), "secret_unavailable", 125),
            ("--env-file", file.to_owned(), "file_unreadable", 125),
            ("--config", file.to_owned(), "invalid_configuration", 2),
        ] {
            let called = bench.call(["run", "--json", flag, &value, "--", "true"]);
            let error = &called.document()["error"];
            assert_eq!((error["code"].as_str(), called.code), (Some(code), exit), "{flag} {value}");
            assert!(error["message"].as_str().unwrap().contains(why), "{flag} {value}: {error}");
        }
    }
    assert_eq!(bench.error(&["fifo"]), ("file_unreadable".into(), 125));
    assert_eq!(bench.error(&["-l", "python", "fifo"]), ("file_unreadable".into(), 125));
    assert_eq!(bench.error(&["--file", "fifo", "--", "true"]), ("file_unreadable".into(), 125));
    // A file without content is what many use to say "nothing".
    for flag in ["--config", "--env-file"] {
        bench.call(["run", flag, "/dev/null", "--", "echo", "ran"]).expect(0, "ran\n");
    }
}

#[test]
fn mounts_that_climb_or_cover_what_is_glovebox_s_own_are_refused() {
    let bench = Bench::new();
    bench.write("data/x", "");
    for mount in ["data:/a/../b", "data:relative", "data:/", "data:/proc/x", "data", ":/x", "data:/x\ny"] {
        assert_eq!(bench.error(&["--mount", mount, "--", "true"]), ("invalid_mount".into(), 2), "{mount:?}");
    }
    assert_eq!(bench.error(&["--file", "data/x:../y", "--", "true"]), ("invalid_path".into(), 2));
    assert_eq!(bench.error(&["--workdir", "../..", "--", "true"]), ("invalid_path".into(), 2));
}

#[test]
fn environment_names_that_cannot_be_are_refused() {
    let bench = Bench::new();
    for text in ["=x", "A\nB=x", "", "NOT_SET_ANYWHERE"] {
        assert_eq!(bench.error(&["--env", text, "--", "true"]), ("invalid_environment".into(), 2), "{text:?}");
    }
    for (text, line) in [("A=1\n=x\n", "line 2"), ("A\0B=1\n", "line 1"), ("A=1\0\n", "line 1"), ("A\u{1}=1", "line 1")]
    {
        bench.write("env", text);
        let called = bench.call(["run", "--env-file", "env", "--", "true"]);
        assert_eq!(called.code, 2, "{text:?}");
        assert!(called.stderr.contains("[invalid_environment]") && called.stderr.contains(line), "{}", called.stderr);
    }
    bench.write("env", b"A=\xff\n");
    assert_eq!(bench.error(&["--env-file", "env", "--", "true"]), ("invalid_environment".into(), 2));
}

#[test]
fn labels_users_layers_and_the_like_are_checked() {
    let bench = Bench::new();
    for (flag, value) in [
        ("--label", "a=b\nc"),
        ("--label", "a\nb=c"),
        ("--label", "nothing"),
        ("--user", "-1"),
        ("--user", "somebody"),
        ("--require-layer", "magic"),
        ("--network", "some"),
        ("--workspace-mode", "copy"),
        ("--image", "Debian:12"),
        ("--image", "a b"),
        ("--runtime", "a b"),
        ("--artifact", "/etc/passwd"),
        ("--artifact", "../../x"),
        ("--backend", "vmware"),
    ] {
        let called = bench.call(["run", flag, value, "--workspace", ".", "--", "true"]);
        assert_eq!(called.code, 2, "{flag} {value:?}: {}", called.stderr);
        assert!(called.stderr.contains(flag) && called.stderr.contains("[invalid_value]"), "{}", called.stderr);
    }
}

#[test]
fn a_backend_that_is_not_in_this_build_says_so() {
    let bench = Bench::new();
    for backend in ["kubernetes", "local"] {
        assert_eq!(bench.error(&["--backend", backend, "--", "true"]), ("backend_unavailable".into(), 125));
    }
    let called = bench.call(["--backend", "kubernetes", "gc", "--json"]);
    assert_eq!(called.document()["error"]["code"], "backend_unavailable");
}

#[test]
fn an_image_needs_a_backend_that_has_images() {
    let bench = Bench::new();
    assert_eq!(bench.error(&["--image", "debian:12", "--", "true"]), ("not_supported".into(), 125));
    assert_eq!(bench.error(&["--runtime", "runsc", "--", "true"]), ("not_supported".into(), 125));
}

#[test]
fn an_unknown_language_is_told_with_the_known_ones() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let notes = bench.write("notes.txt", "hello");
    for (mode, advice) in [(0o644, "-- PROGRAM notes.txt"), (0o755, "-- ./notes.txt")] {
        std::fs::set_permissions(&notes, std::fs::Permissions::from_mode(mode)).unwrap();
        let called = bench.call(["run", "notes.txt"]);
        assert_eq!(called.code, 125);
        for part in ["[unknown_language]", "python", "javascript", "shell", advice] {
            assert!(called.stderr.contains(part), "{part}: {}", called.stderr);
        }
    }
    assert_eq!(bench.error(&["-l", "cobol", "-c", "x"]), ("unknown_language".into(), 125));
}

#[test]
fn arguments_that_are_not_text_are_refused() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let bench = Bench::new();
    let odd = OsStr::from_bytes(b"\xff");
    let called = bench.call([OsStr::new("run"), OsStr::new("--"), OsStr::new("echo"), odd]);
    assert_eq!(called.code, 2);
    assert!(called.stderr.contains("[invalid_value]"), "{}", called.stderr);
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    let bench = Bench::new();
    bench.write("a.py", "");
    bench.write("folder/b.py", "");
    for args in [
        &["-t", "--", "true"][..],
        &["-t", "--json", "--", "true"],
        &["-c", "print(1)"],
        &["-l", "python", "--", "ls"],
        &["--workspace-mode", "read-only", "a.py"],
        &["--workspace", "folder", "--workspace-mode", "read-write", "a.py"],
        &["--workspace", "folder", "--workspace-mode", "read-only", "--file", "a.py", "--", "true"],
        &["--workspace", "folder", "--workspace-mode", "read-write", "--file", "a.py", "--", "true"],
        &["--workspace", "folder", "--workspace-mode", "read-write", "-l", "python", "-c", &"#".repeat(110_000)],
        &["--mount", "folder:/data:rw", "--file", "a.py:/data/a.py", "--", "true"],
    ] {
        let called = bench.call(["run"].iter().chain(args));
        assert_eq!(called.code, 2, "{args:?}: {}", called.stderr);
    }
    assert_eq!(std::fs::read_dir(bench.work().join("folder")).unwrap().count(), 1, "something was written there");
}

#[test]
fn limits_below_what_any_program_needs_are_refused_with_the_least_value() {
    let bench = Bench::new();
    for (flag, value, least) in [("--memory", "100k", "at least 1m"), ("--open-files", "5", "from 16")] {
        let called = bench.call(["run", flag, value, "--", "true"]);
        assert_eq!(called.code, 2);
        assert!(called.stderr.contains(least), "{}", called.stderr);
    }
}

#[test]
fn a_blank_in_an_environment_name_is_refused() {
    let bench = Bench::new();
    bench.write("vars.env", "export A=1\n");
    let called = bench.call(["run", "--env-file", "vars.env", "--", "true"]);
    assert_eq!(called.code, 2);
    assert!(called.stderr.contains("export"), "{}", called.stderr);
}
