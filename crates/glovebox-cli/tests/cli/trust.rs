//! A project's file opens the sandbox only when the caller trusts the project.

use crate::Bench;

#[test]
fn a_project_that_nobody_trusts_cannot_open_the_sandbox() {
    let bench = Bench::new();
    bench.write("data/x", "inside");
    let file = bench.write("glovebox.toml", "mount = ['data:/data']\nnetwork = 'full'\npids = 50");
    let called = bench.call(["run", "--", "cat", "/data/x"]);
    called.expect(125, "");
    for part in [
        "[untrusted_config]",
        file.to_str().unwrap(),
        "mount, network",
        "--trust-project",
        "trust = [",
        "--config /dev/null",
    ] {
        assert!(called.stderr.contains(part), "{part}: {}", called.stderr);
    }
    assert!(!called.stderr.contains("pids"), "{}", called.stderr);
    assert_eq!(bench.error(&["--", "true"]), ("untrusted_config".into(), 125));
    // It is left out, or overruled.
    bench.call(["run", "--config", "/dev/null", "--", "echo", "ran"]).expect(0, "ran\n");
    bench.call(["run", "--network", "none", "--mount", "data:/mine", "--", "cat", "/mine/x"]).expect(0, "inside");
    // What does not use these keys is not held up by them.
    assert_eq!(bench.call(["gc"]).code, 0);
}

#[test]
fn a_project_may_lower_what_is_kept_of_output_and_not_raise_it() {
    let bench = Bench::new();
    let write = ["--json", "--", "sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x"];
    bench.write("glovebox.toml", "output-limit = '1m'\nmemory = '4g'");
    let lowered = bench.result(&write[1..]);
    assert_eq!(lowered["limits"]["output_bytes"], 1 << 20, "{lowered}");
    bench.write("glovebox.toml", "output-limit = '100g'");
    assert_eq!(bench.error(&write[1..]), ("untrusted_config".into(), 125));
    let trusted = bench.call(["run", "--trust-project"].iter().chain(&write)).document();
    assert_eq!(trusted["stdout"]["truncated"], false);
}

#[test]
fn a_project_is_trusted_by_a_flag_a_variable_or_the_callers_own_file() {
    let bench = Bench::new();
    bench.write("data/x", "inside");
    bench.write("glovebox.toml", "mount = ['data:/data']");
    let show = ["--", "cat", "/data/x"];
    let called = bench.call(["run", "--trust-project"].iter().chain(&show));
    called.expect(0, "inside");
    assert_eq!(called.stderr, "");
    let output = bench.glovebox(["run"].iter().chain(&show)).env("GLOVEBOX_TRUST_PROJECT", "1").output().unwrap();
    assert_eq!(output.stdout, b"inside");
    let own_file = bench.home().join(".config/glovebox/config.toml");
    std::fs::write(&own_file, format!("trust = [{:?}]", bench.work())).unwrap();
    bench.call(["run"].iter().chain(&show)).expect(0, "inside");
    // A folder below a trusted one is another project.
    bench.write("vendored/glovebox.toml", "network = 'full'");
    let output = bench.glovebox(["run", "--", "true"]).current_dir(bench.work().join("vendored")).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    // The order of strength stays the same: a flag still beats the file.
    let called = bench.call(["run", "--mount", "data:/other", "--", "ls", "/data"]);
    assert_ne!(called.code, 0);
}

#[test]
fn a_project_cannot_trust_itself() {
    let bench = Bench::new();
    for text in ["trust = ['/']", "trust-project = true"] {
        bench.write("glovebox.toml", format!("{text}\nnetwork = 'full'"));
        assert_eq!(bench.error(&["--", "true"]), ("invalid_configuration".into(), 2), "{text}");
        let called = bench.call(["run", "--trust-project", "--", "true"]);
        assert_eq!(called.code, 2, "{text}");
    }
}

#[test]
fn a_project_that_nobody_trusts_cannot_start_commands_or_take_variables() {
    let bench = Bench::new();
    bench.write("names.env", "A=1\nHOME\n");
    for text in [
        "secret = ['A=command:touch made-it; echo x']",
        "secret = ['HOME']",
        "env = ['HOME']",
        "env-file = ['names.env']",
        "env-file = ['/etc/environment']",
        "file = ['/etc/hostname']",
        "workspace = '/etc'",
    ] {
        bench.write("glovebox.toml", text);
        assert_eq!(bench.error(&["--", "true"]), ("untrusted_config".into(), 125), "{text}");
    }
    assert!(!bench.work().join("made-it").exists());
}

#[test]
fn a_project_may_set_limits_and_show_its_own_folder() {
    let bench = Bench::new();
    bench.write("settings.env", "A=1\n");
    bench.write(
        "glovebox.toml",
        "workspace = '.'\nenv-file = ['settings.env']\nenv = ['B=2']\ntimeout = '10m'\nnetwork = 'none'\nuser = 'nobody'",
    );
    let called = bench.call(["run", "--", "sh", "-c", "echo $A $B; ls"]);
    called.expect(0, "1 2\nglovebox.toml\nsettings.env\n");
}
