//! `unsafe` stands only where it is fenced in, and each use says why it is sound.

use super::{
    Offence,
    code::{code_only, line_of, words},
};
use crate::tree::SourceFile;

/// The only places where `unsafe` may stand. The probe does inside a sandbox what hostile code would
/// do, and that is raw system calls.
const FENCES: [&str; 3] =
    ["crates/glovebox-native/src/sys/", "crates/glovebox-guest/src/sys/", "crates/glovebox-probe/src/sys.rs"];

/// How far above an `unsafe` its note may begin.
const NOTE_LINES: usize = 8;

pub(super) fn unsafe_stays_in_its_fence(files: &[SourceFile]) -> Vec<Offence> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.flat_map(|file| {
        let fenced = FENCES.iter().any(|fence| file.path.starts_with(fence));
        let code = code_only(&file.text);
        let lines: Vec<&str> = file.text.lines().collect();
        let offence = |offset: usize| {
            let line = line_of(&code, offset);
            if !fenced {
                let message = format!("unsafe outside of {}", FENCES.join(", "));
                return Some(Offence::new(&file.path, line, message));
            }
            let tail = code[offset + "unsafe".len()..].trim_start();
            // A block or an impl makes a promise. An unsafe function only asks for one, from its callers, and the
            // operations in it stand in blocks of their own (`unsafe_op_in_unsafe_fn`).
            if !(tail.starts_with('{') || tail.starts_with("impl")) {
                return None;
            }
            let above = &lines[line.saturating_sub(NOTE_LINES + 1)..line];
            let noted = above.iter().any(|text| text.contains("SAFETY:"));
            (!noted).then(|| Offence::new(&file.path, line, "unsafe without a SAFETY note above it"))
        };
        words(&code, "unsafe").filter_map(offence).collect::<Vec<_>>()
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::file, *};

    #[test]
    fn unsafe_outside_the_fence_is_an_offence_and_in_comments_it_is_not() {
        let found = unsafe_stays_in_its_fence(&[file("crates/glovebox-core/src/a.rs", "// unsafe\nunsafe { x() }\n")]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn inside_the_fence_a_note_is_asked_for() {
        let path = "crates/glovebox-native/src/sys/a.rs";
        assert_eq!(unsafe_stays_in_its_fence(&[file(path, "unsafe { x() }\n")]).len(), 1);
        assert!(unsafe_stays_in_its_fence(&[file(path, "// SAFETY: x is sound.\nunsafe { x() }\n")]).is_empty());
    }
}
