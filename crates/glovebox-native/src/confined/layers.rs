//! Which layers a sandbox without namespaces really has.

use glovebox_core::Layer;
use glovebox_guest::marks;

use super::ids::CommandIds;
use crate::{plan::Report, sys};

/// Checks every layer, by what the kernel says of the zygote, from which all commands inherit.
pub(crate) fn present(mark: u64, ids: CommandIds, report: &Report) -> Vec<Layer> {
    let own = report.own.clone().unwrap_or_default();
    let marked = marks::of(own.pid) == Some(mark);
    let status = sys::read_small(format!("/proc/{}/status", own.pid)).ok().filter(|_| marked).unwrap_or_default();
    let field = |name: &str| sys::status_field(&status, name);
    let empty = |set: &str| field(set).is_some_and(|set| set.bytes().all(|b| b == b'0'));
    let no_new_privileges = field("NoNewPrivs") == Some("1");
    let holds = |layer: &Layer| match layer {
        Layer::Keyring => report.keyring,
        // An ordinary user cannot empty the bounding set; without new privileges nothing is gained by it.
        Layer::NoCapabilities => empty("CapBnd") || no_new_privileges && empty("CapPrm") && empty("CapInh"),
        Layer::NoNewPrivs => no_new_privileges,
        Layer::Seccomp => field("Seccomp") == Some("2"),
        Layer::Landlock => report.landlock,
        Layer::Rlimits => report.rlimits && marked,
        Layer::CleanStart => own.clean_environment,
        Layer::SeparateGuest => ids.separate,
        Layer::UnprivilegedUser => ids.uid != 0,
        // Everything else is made of namespaces or control groups.
        _ => false,
    };
    Layer::ALL.iter().copied().filter(holds).collect()
}
