//! Real programs do the same inside as outside.
//!
//! Each script is run twice: bare, as an ordinary user with a clean environment, and in a sandbox with the default limits.
//! Exit code and both streams must be alike; a difference is a fault of the sandbox.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use glovebox_engine::Toolchains;

use crate::{World, case::cases};

cases!["compatibility":
    numpy_pandas_and_a_pool_of_threads_do_the_same_inside file("/usr/lib/python3/dist-packages/pandas"),
    pip_installs_a_local_wheel_inside file("/usr/lib/python3/dist-packages/pip"),
    a_virtual_environment_does_the_same_inside file("/usr/share/python-wheels"),
    worker_threads_of_node_do_the_same_inside program("node"),
    npm_installs_a_local_tarball_inside program("npm"),
    gcc_and_make_build_the_same_inside program("make"),
    cmake_builds_the_same_inside program("cmake"),
    go_builds_and_tests_the_same_inside program("go"),
    javac_and_java_do_the_same_inside program("javac"),
    cargo_builds_and_tests_the_same_inside rust(),
    git_clones_a_local_repository_inside program("git"),
    sqlite_does_the_same_inside program("sqlite3"),
    tar_and_zstd_pack_the_same_inside program("zstd"),
    servers_and_clients_on_loopback_do_the_same_inside program("node"),
    a_fork_heavy_build_of_the_shell_does_the_same_inside program("bash"),
];

/// A function for each script.
macro_rules! scripts {
    ($($case:ident = $file:literal;)+) => {
        $(async fn $case(w: World) {
            does_the_same(&w, include_str!(concat!("compatibility/", $file)), None).await;
        })+
    };
}

scripts! {
    numpy_pandas_and_a_pool_of_threads_do_the_same_inside = "python_science.sh";
    pip_installs_a_local_wheel_inside = "python_wheel.sh";
    a_virtual_environment_does_the_same_inside = "python_venv.sh";
    worker_threads_of_node_do_the_same_inside = "node_workers.sh";
    npm_installs_a_local_tarball_inside = "npm_tarball.sh";
    gcc_and_make_build_the_same_inside = "gcc_make.sh";
    cmake_builds_the_same_inside = "cmake_build.sh";
    go_builds_and_tests_the_same_inside = "go_build.sh";
    javac_and_java_do_the_same_inside = "java_classes.sh";
    git_clones_a_local_repository_inside = "git_clone.sh";
    sqlite_does_the_same_inside = "sqlite_database.sh";
    tar_and_zstd_pack_the_same_inside = "tar_zstd.sh";
    servers_and_clients_on_loopback_do_the_same_inside = "web_server.sh";
    a_fork_heavy_build_of_the_shell_does_the_same_inside = "shell_forks.sh";
}

/// Rust lives in the home of whoever tests, so this also shows that a toolchain from there works inside.
async fn cargo_builds_and_tests_the_same_inside(w: World) {
    let toolchain = rust_toolchain().expect("the case is skipped without one");
    does_the_same(&w, include_str!("compatibility/cargo_build.sh"), Some(toolchain)).await;
}

/// The folder of the Rust toolchain that this suite's own builder uses.
pub(crate) fn rust_toolchain() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    folder.join("bin/cargo").exists().then_some(folder)
}

async fn does_the_same(w: &World, script: &str, toolchain: Option<PathBuf>) {
    let bare = run_bare(&w.folder("bare"), script, toolchain.as_deref());
    assert_eq!(bare.0, Some(0), "the program fails outside too: {bare:?}");
    let toolchains = Toolchains::new(toolchain).expect("the toolchain is a folder");
    let inside = w.sandbox().toolchains(toolchains).run(["sh", "-e", "-c", script]).await;
    assert_eq!((inside.out(), inside.err()), (bare.1, bare.2), "inside and bare\n{}", inside.story());
    inside.expect_exit(0);
}

/// Runs a script without a sandbox, as nobody where root tests, and with the environment of a sandbox.
fn run_bare(folder: &Path, script: &str, toolchain: Option<&Path>) -> (Option<i32>, String, String) {
    const NOBODY: &str = "65534";
    let home = folder.join("home");
    fs::create_dir(&home).expect("a home can be made");
    let root = rustix::process::geteuid().is_root();
    for path in [folder, &home].into_iter().filter(|_| root) {
        chown(path, Some(65534), Some(65534)).expect("root may give folders away");
    }
    let above = folder.parent().expect("it lies in the scratch folder");
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).expect("the scratch folder is ours");
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let mut path = usual.to_owned();
    let mut command = Command::new("timeout");
    command.arg("60");
    if let Some(toolchain) = toolchain {
        // It may lie in a home that is closed to others. A sandbox gets around that by a mount, and so does this.
        let place = folder.join("toolchain");
        fs::create_dir(&place).expect("a folder for the mount");
        path = format!("{}/bin:{usual}", place.display());
        let mount = "mount --bind \"$0\" \"$1\"; shift; exec \"$@\"";
        command.args(["unshare", "--mount", "sh", "-e", "-c", mount]).args([toolchain, &place]);
    }
    if root {
        command.args(["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    }
    command.args(["sh", "-e", "-c", script]).current_dir(folder).stdin(std::process::Stdio::null());
    command.env_clear().env("PATH", path).env("HOME", home).env("LANG", "C.UTF-8").env("TERM", "xterm-256color");
    let output = command.output().expect("the script can be started");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}
