//! What /proc says of a process.

use std::fs;

use anyhow::{Context, Result};

/// Proportional set size, KiB: memory of its own plus its share of what it shares.
pub(crate) fn pss_kib(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    field(&fs::read_to_string(&path).with_context(|| path.clone())?, "Pss:").context(path)
}

/// Highest resident size since the start or the last [`forget_peak`], KiB.
pub(crate) fn peak_kib(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    field(&fs::read_to_string(&path).with_context(|| path.clone())?, "VmHWM:").context(path)
}

/// Makes the kernel count the highest resident size anew.
pub(crate) fn forget_peak(pid: i32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").context(path)
}

/// The processes of this machine at one moment, and whose children they are.
pub(crate) struct Tree {
    /// Parent and child.
    pairs: Vec<(i32, i32)>,
}

impl Tree {
    /// Looks at all processes.
    pub(crate) fn now() -> Result<Self> {
        let mut pairs = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(child) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            // A process that ends while the folder is read has no stat any more.
            let Ok(stat) = fs::read_to_string(format!("/proc/{child}/stat")) else { continue };
            // The name in parentheses may hold anything, so the fields are counted from its end.
            let parent = stat.rsplit(')').next().and_then(|tail| tail.split_whitespace().nth(1)?.parse::<i32>().ok());
            pairs.extend(parent.map(|parent| (parent, child)));
        }
        Ok(Tree { pairs })
    }

    /// A process and all below it.
    pub(crate) fn below(&self, pid: i32) -> Vec<i32> {
        let mut found = vec![pid];
        let mut at = 0;
        while at < found.len() {
            let children = self.pairs.iter().filter(|(parent, _)| *parent == found[at]).map(|(_, child)| *child);
            found.extend(children.collect::<Vec<_>>());
            at += 1;
        }
        found
    }
}

/// A process and all below it.
pub(crate) fn with_descendants(pid: i32) -> Result<Vec<i32>> {
    Ok(Tree::now()?.below(pid))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
