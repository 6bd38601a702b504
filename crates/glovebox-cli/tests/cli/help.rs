//! Help, completions, man pages.

use crate::Bench;

#[test]
fn glovebox_alone_prints_its_help() {
    let bench = Bench::new();
    let called = bench.call::<&str>([]);
    assert_eq!(called.code, 0);
    assert!(called.text().contains("Examples:") && called.text().contains("glovebox run hello.py"));
    assert!(called.text().contains("  man "));
}

#[test]
fn the_help_of_run_has_headings_examples_and_exit_codes() {
    let bench = Bench::new();
    for flag in ["-h", "--help"] {
        let called = bench.call(["run", flag]);
        assert_eq!(called.code, 0);
        for part in
            ["Limits:", "Files:", "Environment and network:", "Examples:", "Exit codes:", "[default: 2g]", "-- COMMAND"]
        {
            assert!(called.text().contains(part), "{part}");
        }
    }
}

#[test]
fn the_version_is_printed() {
    let bench = Bench::new();
    bench.call(["--version"]).expect(0, concat!("glovebox ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn every_shell_gets_a_completion_script() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish"] {
        let called = bench.call(["completions", shell]);
        assert_eq!(called.code, 0);
        assert!(called.text().contains("output-limit"), "{shell}");
    }
    assert_eq!(bench.call(["completions", "cmd.exe"]).code, 2);
}

#[test]
fn man_pages_are_written_for_the_program_and_each_verb() {
    let bench = Bench::new();
    assert_eq!(bench.call(["man", "pages"]).code, 0);
    for (page, part) in [("glovebox.1", "sandbox"), ("glovebox-run.1", "output\\-limit"), ("glovebox-gc.1", "Remove")] {
        let text = std::fs::read_to_string(bench.work().join("pages").join(page)).unwrap();
        assert!(text.contains(part), "{page} does not say {part}");
    }
    assert!(bench.work().join("pages/glovebox-man.1").exists());
}
