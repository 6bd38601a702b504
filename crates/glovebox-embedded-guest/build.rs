//! Builds the program `glovebox-guest` for containers: static, small, and for the machine that the outer build is for.
//!
//! It is a build of its own in a folder of its own, since cargo cannot yet have one package built for two targets. What the outer
//! build was told of flags and wrappers is not meant for it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

/// Variables of the outer build that would change the inner one.
const NOT_OURS: [&str; 6] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
];

/// The crates that the program is made of. Others may change without a new one.
const CRATES: [&str; 3] = ["glovebox-guest", "glovebox-proto", "glovebox-archive"];

fn main() {
    let crate_folder = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let root = crate_folder.ancestors().nth(2).expect("the crate is two folders below the workspace").to_owned();
    let crates = CRATES.iter().flat_map(|name| ["src", "Cargo.toml"].map(|part| format!("crates/{name}/{part}")));
    for source in crates.chain(["Cargo.toml".to_owned(), "Cargo.lock".to_owned()]) {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let program = build(&root);
    let bytes = fs::read(&program).expect("the guest was built");
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(Path::new(&variable("OUT_DIR")).join("glovebox-guest"), &bytes).expect("the guest can be written");
    println!("cargo::rustc-env=GLOVEBOX_GUEST_SHA256={hash}");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// Builds the program and says where it is.
fn build(root: &Path) -> PathBuf {
    let (target, mut flags) = target();
    let folder = folder();
    // Where it was built says nothing to anybody, and the same sources are to be the same bytes.
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let remapped = [(Some(root.to_owned()), "/glovebox"), (home, "/cargo"), (Some(folder.clone()), "/build")];
    for (path, name) in remapped {
        flags.extend(path.map(|path| format!("--remap-path-prefix={}={name}", path.display())));
    }
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(root);
    for name in NOT_OURS {
        cargo.env_remove(name);
    }
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PROFILE_")) {
        cargo.env_remove(name);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    cargo.args(["build", "--locked", "--package", "glovebox-guest", "--bin", "glovebox-guest"]);
    cargo.args(["--profile", "guest", "--target", &target, "--target-dir"]).arg(&folder);
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "glovebox-guest could not be built for {target}");
    folder.join(target).join("guest/glovebox-guest")
}

/// Where to build: beside the folders of the outer build's profiles, so that a check, a debug build and a release have one guest
/// built once. Where those are not what they were, below our own.
fn folder() -> PathBuf {
    let own = PathBuf::from(variable("OUT_DIR"));
    let profile = own.ancestors().find(|path| path.ends_with("build")).and_then(Path::parent);
    profile.and_then(Path::parent).unwrap_or(&own).join("embedded-guest")
}

/// What to build for, and the flags that make it static: musl where Rust has it for this machine, or else the C library of the host.
fn target() -> (String, Vec<String>) {
    let machine = variable("CARGO_CFG_TARGET_ARCH");
    let musl = format!("{machine}-unknown-linux-musl");
    let asked = Command::new(variable("RUSTC")).args(["--print", "target-libdir", "--target", &musl]).output();
    let folder = asked.ok().filter(|asked| asked.status.success());
    let folder = folder.and_then(|asked| Some(PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim())));
    match folder {
        Some(folder) if folder.is_dir() => (musl, Vec::new()),
        _ => (format!("{machine}-unknown-linux-gnu"), vec!["-Ctarget-feature=+crt-static".to_owned()]),
    }
}
