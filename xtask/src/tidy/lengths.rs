//! Functions and files stay short enough to be read at one go.

use super::{
    Offence,
    code::{code_only, line_of, words},
};
use crate::tree::SourceFile;

/// Longest function, lines.
const FUNCTION: usize = 100;
/// Longest file without its tests, lines.
const FILE: usize = 500;
/// A file with this mark is a table: it is long because there is much to list.
const TABLE: &str = "// tidy: table";

pub(super) fn functions_and_files_are_short(files: &[SourceFile]) -> Vec<Offence> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs") && !is_table(&file.text));
    rust.flat_map(|file| {
        let lines = file.text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        let long_file =
            (lines > FILE).then(|| Offence::new(&file.path, 0, format!("{lines} lines without tests; at most {FILE}")));
        let code = code_only(&file.text);
        let long_functions: Vec<Offence> = words(&code, "fn")
            .filter_map(|start| {
                let end = body_end(&code[start..])? + start;
                let length = line_of(&code, end) - line_of(&code, start) + 1;
                let message = format!("a function of {length} lines; at most {FUNCTION}");
                (length > FUNCTION).then(|| Offence::new(&file.path, line_of(&code, start), message))
            })
            .collect();
        long_file.into_iter().chain(long_functions)
    })
    .collect()
}

fn is_table(text: &str) -> bool {
    text.lines().any(|line| line.trim() == TABLE)
}

/// Offset of the brace that closes the body of the function that `code` starts with; none when it has no body.
fn body_end(code: &str) -> Option<usize> {
    let mut braces = 0usize;
    let mut brackets = 0usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.checked_sub(1)?,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces = braces.checked_sub(1)?;
                if braces == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{super::tests::file, *};

    fn function(lines: usize) -> String {
        format!("fn f(a: [u8; 4]) {{\n{}}}\n", "    x();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_101_lines_is_an_offence() {
        assert!(functions_and_files_are_short(&[file("a.rs", &function(100))]).is_empty());
        assert_eq!(functions_and_files_are_short(&[file("a.rs", &function(101))]).len(), 1);
    }

    #[test]
    fn tests_do_not_count_for_the_file_and_tables_are_excepted() {
        let code = "const A: u8 = 1;\n".repeat(501);
        assert_eq!(functions_and_files_are_short(&[file("a.rs", &code)]).len(), 1);
        assert!(functions_and_files_are_short(&[file("a.rs", &format!("// tidy: table\n{code}"))]).is_empty());
        assert!(functions_and_files_are_short(&[file("a.rs", &format!("#[cfg(test)]\n{code}"))]).is_empty());
    }
}
