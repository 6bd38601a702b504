# A package with a library, a build script, a test and threads, by cargo.
export CARGO_HOME=$PWD/.cargo CARGO_TERM_COLOR=never
mkdir src
cat > Cargo.toml <<'END'
[package]
name = "app"
version = "0.1.0"
edition = "2021"
END
printf 'fn main() { println!("cargo::rustc-env=MADE_BY=a build script"); }\n' > build.rs
printf 'pub fn square(n: u64) -> u64 { n * n }\n#[test]\nfn squares() { assert_eq!(square(3), 9) }\n' > src/lib.rs
cat > src/main.rs <<'END'
fn main() {
    let threads: Vec<_> = (0..8).map(|n| std::thread::spawn(move || app::square(n))).collect();
    let sum: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{sum} by {}", env!("MADE_BY"));
}
END
cargo build --quiet --offline
target/debug/app
cargo test --quiet --offline --lib | grep -o '1 passed; 0 failed'
