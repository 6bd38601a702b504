//! Variables and configuration files.

use crate::Bench;

fn pids(bench: &Bench, variable: Option<&str>, flag: Option<&str>) -> u64 {
    let mut command = bench.glovebox(["run", "--json"]);
    if let Some(value) = variable {
        command.env("GLOVEBOX_PIDS", value);
    }
    if let Some(value) = flag {
        command.args(["--pids", value]);
    }
    let output = command.args(["--", "true"]).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    document["limits"]["pids"].as_u64().unwrap_or_else(|| panic!("{document}"))
}

#[test]
fn a_flag_beats_a_variable_which_beats_the_project_file_which_beats_the_user_file() {
    let bench = Bench::new();
    assert_eq!(pids(&bench, None, None), 100);
    std::fs::write(bench.home().join(".config/glovebox/config.toml"), "pids = 41").unwrap();
    assert_eq!(pids(&bench, None, None), 41);
    // The project's file is found from a folder below it.
    std::fs::write(bench.work().parent().unwrap().join("glovebox.toml"), "pids = 42").unwrap();
    assert_eq!(pids(&bench, None, None), 42);
    assert_eq!(pids(&bench, Some("43"), None), 43);
    assert_eq!(pids(&bench, Some("43"), Some("44")), 44);
}

#[test]
fn the_user_file_is_found_where_xdg_says() {
    let bench = Bench::new();
    bench.write("xdg/glovebox/config.toml", "json = true\npids = 45");
    let output =
        bench.glovebox(["run", "--", "true"]).env("XDG_CONFIG_HOME", bench.work().join("xdg")).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["limits"]["pids"], 45);
}

#[test]
fn variables_set_switches_lists_and_everything_else() {
    let bench = Bench::new();
    let mut command = bench.glovebox(["run", "--", "sh", "-c", "echo $A $B"]);
    command.env("GLOVEBOX_JSON", "1").env("GLOVEBOX_ENV", "A=1\nB=two words").env("GLOVEBOX_LABEL", "k=v");
    let document: serde_json::Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert_eq!(document["stdout"]["text"], "1 two words\n");
    assert_eq!(document["labels"]["k"], "v");
}

#[test]
fn a_wrong_value_says_where_it_came_from() {
    let bench = Bench::new();
    let output = bench.glovebox(["run", "--", "true"]).env("GLOVEBOX_MEMORY", "0").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("GLOVEBOX_MEMORY"));
    let file = bench.write("glovebox.toml", "memory = 0");
    let called = bench.call(["run", "--", "true"]);
    assert_eq!(called.code, 2);
    assert!(called.stderr.contains(file.to_str().unwrap()) && called.stderr.contains("--memory"), "{}", called.stderr);
}

#[test]
fn an_unknown_key_is_an_error_that_names_file_and_key() {
    let bench = Bench::new();
    let file = bench.write("glovebox.toml", "memroy = '1g'");
    let called = bench.call(["run", "--", "true"]);
    assert_eq!(called.code, 2);
    for part in ["[invalid_configuration]", "memroy", file.to_str().unwrap()] {
        assert!(called.stderr.contains(part), "{part}: {}", called.stderr);
    }
}

#[test]
fn a_variable_that_sets_nothing_is_named_with_the_nearest_one() {
    let bench = Bench::new();
    for json in [&["run"][..], &["run", "--json"]] {
        let mut command = bench.glovebox(json.iter().chain(&["--", "true"]));
        let output = command.env("GLOVEBOX_MEMROY", "hunter2").env("GLOVEBOX_MEMORY", "64m").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.matches("GLOVEBOX_MEMROY").count(), 1, "{said}");
        assert!(said.contains("did you mean GLOVEBOX_MEMORY?") && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_switch_that_is_neither_yes_nor_no_is_told_with_the_forms() {
    let bench = Bench::new();
    let output = bench.glovebox(["run", "--", "true"]).env("GLOVEBOX_JSON", "maybe").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    for part in ["--json", "\"maybe\"", "expected 1, true, yes or on", "GLOVEBOX_JSON", "[invalid_value]"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for (value, is_json) in [("y", true), ("ON", true), ("0", false), ("no", false)] {
        let output = bench.glovebox(["run", "--", "true"]).env("GLOVEBOX_JSON", value).output().unwrap();
        assert_eq!(output.stdout.starts_with(b"{"), is_json, "{value}");
    }
}

#[test]
fn verbose_speaks_on_standard_error_beside_a_json_document_too() {
    let bench = Bench::new();
    let file = bench.write("glovebox.toml", "pids = 50");
    for args in [&["run", "-v", "--", "true"][..], &["run", "-v", "--json", "--", "true"]] {
        let called = bench.call(args);
        assert_eq!(called.code, 0);
        for part in [file.to_str().unwrap(), "wall time", "layers in place"] {
            assert!(called.stderr.contains(part), "{args:?} {part}: {}", called.stderr);
        }
    }
    bench.call(["run", "-v", "--json", "--", "true"]).document();
}

/// The guide, which is written for people and read here as a program would.
const GUIDE: &str = include_str!("../../../../docs/guides/configuration.md");

#[test]
fn the_example_of_the_guide_can_be_copied() {
    let example = GUIDE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let bench = Bench::new();
    bench.write("glovebox.toml", example);
    let show = ["--", "sh", "-c", "echo $PYTHONUNBUFFERED; pwd"];
    let document = bench.result(&show);
    assert_eq!(document["stdout"]["text"], "1\n/workspace/agent_workspace\n", "{document}");
    assert_eq!(document["limits"]["memory_bytes"], 512 << 20);
    assert_eq!(document["limits"]["timeout_ms"], 30_000);
    assert_eq!(document["labels"]["team"], "blue");
}

#[test]
fn what_was_typed_runs_whatever_a_file_or_variable_says_of_code_and_language() {
    let bench = Bench::new();
    bench.write("glovebox.toml", "code = \"print('from the file')\"\nlanguage = \"python\"\nterminal = true\n");
    bench.write("s.sh", "echo from the script\n");
    bench.call(["run", "--", "echo", "typed"]).expect(0, "typed\n");
    bench.call(["run", "s.sh"]).expect(0, "from the script\n");
    bench.call(["run"]).expect(0, "from the file\n");
}

#[test]
fn a_language_from_a_file_serves_a_file_that_does_not_say_its_own() {
    let bench = Bench::new();
    bench.write("glovebox.toml", "language = \"python\"\n");
    bench.write("plain", "print('python')\n");
    bench.call(["run", "plain"]).expect(0, "python\n");
}

#[test]
fn a_broken_file_of_a_project_does_not_break_completions_and_man_pages() {
    let bench = Bench::new();
    bench.write("glovebox.toml", "bogus = 1\n");
    assert_eq!(bench.call(["completions", "bash"]).code, 0);
    assert_eq!(bench.call(["man", "pages"]).code, 0);
    assert_eq!(bench.call(["run", "--", "true"]).code, 2);
}
