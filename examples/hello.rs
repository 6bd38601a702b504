// glovebox run examples/hello.rs Ada
fn main() {
    let who = std::env::args().nth(1).unwrap_or("world".into());
    println!("hello, {who}! I am in {}", std::env::current_dir().unwrap().display());
}
