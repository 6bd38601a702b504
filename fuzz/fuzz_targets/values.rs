//! The parsers of what people type. None may panic, and what they accept must keep the rules that the rest relies on.
#![no_main]

use std::time::Duration;

use glovebox_core::{
    EnvName, InsidePath, Label, Mount, RunId, SandboxId, Shebang, User, WORKING_DIR, parse_count, parse_cpus,
    parse_duration, parse_size,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Shebang::parse(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(size) = parse_size(text) {
        assert!(size > 0 && size <= i64::MAX as u64);
    }
    if let Ok(duration) = parse_duration(text) {
        assert!(duration > Duration::ZERO);
    }
    if let Ok(cpus) = parse_cpus(text) {
        assert!(cpus.is_finite() && cpus > 0.0);
    }
    if let Ok(count) = parse_count(text) {
        assert!(count > 0);
    }
    let base = InsidePath::absolute(WORKING_DIR).expect("the working directory is a path");
    for path in [InsidePath::absolute(text), InsidePath::relative_to(&base, text)].into_iter().flatten() {
        assert_path(&path);
    }
    if let Ok(mount) = Mount::parse(text) {
        assert_path(&mount.target);
        assert!(mount.target.as_str() != "/" && !mount.target.is_under("/proc") && !mount.target.is_under("/dev"));
    }
    if let Ok(name) = EnvName::parse(text) {
        assert!(!name.as_str().is_empty() && !name.as_str().contains(['=', '\0', '\n']));
    }
    if let Ok(label) = Label::parse(text) {
        assert!(!label.key.is_empty());
    }
    if let Ok(user) = User::parse(text) {
        assert!(user.uid < 65535 && user.gid < 65535);
    }
    if let Ok(id) = text.parse::<SandboxId>() {
        assert_eq!(id.to_string().to_uppercase(), text.to_uppercase());
    }
    let _ = text.parse::<RunId>();
});

fn assert_path(path: &InsidePath) {
    let text = path.as_str();
    assert!(text.starts_with('/') && !text.contains(['\0', '\n']) && !text.contains("//"));
    assert!(!text.split('/').any(|part| part == ".." || part == "."));
    assert_eq!(InsidePath::absolute(text).expect("a checked path is a path").as_str(), text);
}
