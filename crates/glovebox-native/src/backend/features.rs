//! What the native backend can do on this host.

use std::sync::OnceLock;

use glovebox_core::{Error, ErrorCode, Features, Result, Tier};

use super::{NativeBackend, answer};
use crate::{
    plan::{Answer, Order},
    standing::{Standing, SubIds},
    sys,
};

impl NativeBackend {
    /// Everything that tests and callers may rely on.
    pub(super) async fn features(&self) -> Result<Features> {
        let namespaces = self.tier().await? == Tier::Namespaces;
        let is_root = Standing::is_root();
        let uid = rustix::process::geteuid();
        Ok(Features {
            namespaces,
            cgroup_limits: namespaces && self.cgroups()?.is_complete(),
            workspace_overlay: true,
            mounts: namespaces,
            volumes_elsewhere: false,
            network_full: true,
            disk_limit: namespaces,
            host_image: true,
            user_xattrs: namespaces && sys::tmpfs_has_user_xattrs(),
            scoped_sockets: sys::landlock_version() >= 6,
            watched_memory: !namespaces || !self.cgroups()?.held().memory,
            idmapped_mounts: namespaces && is_root,
            own_ids: namespaces && is_root,
            ends_later: true,
            separate_guest: if namespaces { is_root || SubIds::of_caller().is_some() } else { uid.is_root() },
            run_groups: namespaces && self.has_run_groups(),
            living: namespaces,
            pause: namespaces && self.cgroups()?.can_freeze(),
            guest_outlives_pause: true,
            one_store: true,
            own_root: true,
            group_namespace: true,
            inode_limit: true,
            host_kernel: true,
            files_through_guest: false,
            host_folders: true,
            counters: true,
        })
    }

    /// Whether runs have groups of their own, by which they are counted one by one.
    pub(super) fn has_run_groups(&self) -> bool {
        // It is asked before every run, and a process stays what it is.
        static STANDING: OnceLock<Standing> = OnceLock::new();
        let standing = STANDING.get_or_init(|| match SubIds::of_caller() {
            _ if Standing::is_root() => Standing::Root,
            Some(_) => Standing::SubIds,
            None => Standing::OneId,
        });
        self.cgroups().is_ok_and(|groups| groups.has_leaves(*standing))
    }

    /// The tier of the sandboxes that can be had here.
    async fn tier(&self) -> Result<Tier> {
        if self.launcher.is_none() {
            return Ok(Tier::Namespaces);
        }
        match answer(self.order(&Order::Tier, None)?).await? {
            (Answer::Tier(tier), _) => Ok(tier),
            _ => Err(Error::new(ErrorCode::Internal, "the launcher answered another question")),
        }
    }
}
