//! The program `crosslane`.
fn main() {
    let file = std::env::args().nth(1).unwrap_or_default();
    if let Err(error) = crosslane::agent::run(std::path::Path::new(&file)) {
        eprintln!("{error}");
    }
}
