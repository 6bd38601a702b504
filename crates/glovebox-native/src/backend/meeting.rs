//! What is known of a sandbox once somebody has made it: its layers, its limits, its guest.

use std::os::fd::OwnedFd;

use glovebox_core::{Created, Error, ErrorCode, Image, Isolation, Result, SandboxId, Tier};

use super::{Made, NativeBackend, answer, gone, planning::substitute};
use crate::{cgroup::HeldByGroups, plan::Answer};

impl NativeBackend {
    /// Hears of a sandbox from whoever made it or keeps it, and notes that.
    pub(super) async fn meet(&self, id: SandboxId, socket: OwnedFd) -> Result<Created> {
        let (answer, fds) = answer(socket).await?;
        let (tier, places) = match &answer {
            Answer::Confined { places, .. } => (Tier::Landlock, places.clone()),
            _ => (Tier::Namespaces, Vec::new()),
        };
        let (by_groups, guest_pid, group, present) = match answer {
            Answer::Created { held, guest_pid, group, present } => (held, guest_pid, group, present),
            Answer::Confined { guest_pid, present, .. } => (HeldByGroups::default(), guest_pid, String::new(), present),
            Answer::Failed(failure) => return Err(failure.into_error()),
            _ => return Err(gone(id)),
        };
        let mut fds = fds.into_iter();
        let (Some(store), Some(guest)) = (fds.next(), fds.next()) else {
            return Err(Error::new(ErrorCode::Internal, "the launcher's answer is not whole"));
        };
        let isolation = Isolation::from_checks(tier, |layer| present.contains(&layer));
        let mut all = self.held();
        let held = all.get_mut(&id).ok_or_else(|| gone(id))?;
        held.made = Some(Made { store, guest, watch: fds.next(), guest_pid, group, by_groups, tier });
        substitute(&mut held.limits, by_groups, held.as_root, &isolation);
        if let Some(layer) = held.required.iter().find(|layer| !isolation.has(**layer)) {
            let message = format!("the layer {layer} was asked for and is missing");
            return Err(Error::new(ErrorCode::LayerMissing, message));
        }
        let created =
            Created { isolation, limits: held.limits.clone(), places, image: Image::Host, image_digest: None };
        held.created = Some(created.clone());
        Ok(created)
    }
}
