//! The house's own tool, `cargo xtask VERB`: what CI runs, what is run before a release, and what writes the docs.

mod bench;
mod beside;
mod distribution;
mod docker;
mod docs;
mod examples;
mod mcp_clients;
mod need;
mod soak;
mod suites;
mod test;
mod tidy;
mod toolchains;
mod tree;
mod vm;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask VERB

  test                      everything that must hold before a change goes in; what CI runs (root)
  soak [--fuzz-minutes N]   the long ones: 1,000 runs, 200 at once, 10,000 sandboxes that stay, 200 kills, random
                            lives, a million files, fuzzing, releases (root; N is 2)
  soak --docker             those of them that a Docker engine endures, alone
  bench [FLAGS]             one table against fork+exec, bubblewrap, runc and docker (root; --help for FLAGS)
  vm [--engine docker|podman] [--only NAME]…
                            the conformance suite on Debian's kernel with control groups of version 2 (root), or on an engine there;
                            --only runs the cases whose group is NAME, or whose sentence holds it
  tidy                      the house rules over the whole tree
  dist [--try]              the static program, packed: archive, Debian package, install script, checksums
                            (--try also installs and uses them on three bare systems; root)
  docker start|stop|status  a private Docker daemon with the images of the tests; start prints its DOCKER_HOST (root)
  docker test               all suites with a Docker engine, with what is built, as test runs them (root)
  docker faults [WORDS]     breaks daemons of its own in all ways, and tries what the Docker backend makes of it (root)
  docker check              tries that daemon, its images and its registries, and the command line on it, as test does (root)
  docker commands           the command line on it alone (root)
  docker mapped|gvisor|podman|remote
                            the conformance suite on an engine whose containers have ids of their own, in gVisor, on a private
                            Podman, or as on another machine (root)
  docs [--check]            writes docs/reference and the README's picture, or says which file is stale
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (verb, rest) = match args.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("help", &[][..]),
    };
    let done = match verb {
        "test" => no_flags(rest).and_then(|()| test::test()),
        "soak" => soak::soak(rest),
        "bench" => bench::bench(rest),
        "vm" => vm::vm(rest),
        "tidy" => no_flags(rest).and_then(|()| tidy::tidy()),
        "dist" => distribution::dist(rest),
        "docker" => docker::docker(rest),
        "docs" => docs::docs(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("xtask: there is no verb '{verb}'\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {verb}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn no_flags(rest: &[String]) -> anyhow::Result<()> {
    anyhow::ensure!(rest.is_empty(), "'{}' was not expected", rest.join(" "));
    Ok(())
}
