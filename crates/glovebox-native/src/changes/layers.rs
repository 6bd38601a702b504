//! Which layers a workspace has, and how what is written there is kept.

use std::{collections::BTreeSet, io, os::fd::OwnedFd, path::Path};

use glovebox_core::{Error, ErrorCode, Result, SandboxSpec, Tier, WorkspaceMode};
use jiff::Timestamp;
use rustix::fs::{Mode, OFlags, Timespec};

use crate::{plan::Plan, standing::Standing};

/// What is needed to tell the changes of a sandbox.
#[derive(Debug)]
pub(crate) struct Layers {
    pub(super) working: Working,
    pub(super) marks: MarkNames,
    /// Places of mounts below `/workspace`: they were made by us, and what is in them belongs to others.
    pub(super) mounts: BTreeSet<String>,
    /// When the sandbox was made, as the host's clock said.
    pub(super) made: Timespec,
}

/// The attributes in which overlayfs keeps what it knows of a folder. Only one kind counts: the other could have been
/// written by a program inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkNames {
    pub(super) opaque: &'static str,
    pub(super) redirect: &'static str,
}

impl MarkNames {
    fn of_caller() -> Self {
        match Standing::is_root() {
            true => MarkNames { opaque: "trusted.overlay.opaque", redirect: "trusted.overlay.redirect" },
            false => MarkNames { opaque: "user.overlay.opaque", redirect: "user.overlay.redirect" },
        }
    }
}

/// Which layers the working directory has.
#[derive(Debug)]
pub(super) enum Working {
    /// It began empty.
    Fresh,
    /// It is an overlay over this folder of the host.
    Overlay(OwnedFd),
    /// It is an overlay over a folder of the host that cannot be opened any more. The sandbox still has it.
    OverlayOfGone,
    /// It is a folder of the host itself: nothing stays inside.
    Direct,
}

impl Layers {
    /// The layers of a sandbox that is about to be made.
    pub(crate) fn of(plan: &Plan) -> Result<Self> {
        let made = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let source = plan.workspace.as_ref().map(|workspace| Path::new(&workspace.source));
        let working = Working::of(source, plan.workspace_overlay).map_err(|error| {
            Error::new(ErrorCode::FileUnreadable, "the workspace cannot be read").because(io::Error::from(error))
        })?;
        let targets = plan.mounts.iter().map(|mount| mount.target.as_str());
        Ok(Layers::new(working, targets, made))
    }

    /// The layers of a living sandbox. The folder that its working directory shows may have gone from the host: what was
    /// mounted stays mounted.
    pub(crate) fn of_living(spec: &SandboxSpec) -> Self {
        let source = spec.workspace.as_ref().map(|workspace| workspace.source.as_path());
        let is_overlay = spec.workspace.as_ref().is_some_and(|workspace| workspace.mode == WorkspaceMode::Overlay);
        let working = Working::of(source, is_overlay).unwrap_or(Working::OverlayOfGone);
        let targets = spec.mounts.iter().map(|mount| mount.target.as_str());
        let created_at = spec.living.as_ref().map_or(Timestamp::UNIX_EPOCH, |living| living.created_at);
        let made = Timespec { tv_sec: created_at.as_second(), tv_nsec: created_at.subsec_nanosecond().into() };
        Layers::new(working, targets, made)
    }

    fn new<'a>(working: Working, targets: impl Iterator<Item = &'a str>, made: Timespec) -> Self {
        let mounts = targets.filter_map(|target| target.strip_prefix("/workspace/")).map(str::to_owned).collect();
        Layers { working, marks: MarkNames::of_caller(), mounts, made }
    }
}

impl Working {
    fn of(source: Option<&Path>, is_overlay: bool) -> rustix::io::Result<Self> {
        let Some(source) = source else { return Ok(Working::Fresh) };
        if !is_overlay {
            return Ok(Working::Direct);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Working::Overlay(rustix::fs::open(source, flags, Mode::empty())?))
    }
}

/// How writes into a workspace that stays as it is are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// In the upper layer of an overlay.
    Overlay,
    /// In a copy of the whole workspace, where no overlay can be mounted.
    Copy,
}

impl Written {
    /// How sandboxes of a tier do it.
    pub(crate) fn by(tier: Tier) -> Self {
        match tier {
            Tier::Namespaces => Written::Overlay,
            Tier::Landlock => Written::Copy,
        }
    }
}
