//! What is known of a sandbox once somebody has made it: its layers, its limits, its guest.

use std::os::fd::OwnedFd;

use glovebox_core::{Created, Error, ErrorCode, Image, Isolation, Result, SandboxId, Tier};

use super::{Held, Made, answer, gone, planning::substitute};
use crate::{cgroup::HeldByGroups, plan::Answer};

/// What was heard of a sandbox from whoever made it or keeps it.
pub(super) struct Heard {
    made: Made,
    isolation: Isolation,
    places: Vec<(String, String)>,
}

/// Waits for what is told of a sandbox.
pub(super) async fn hear(id: SandboxId, socket: OwnedFd) -> Result<Heard> {
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
    let made = Made { store, guest, watch: fds.next(), guest_pid, group, by_groups, tier };
    Ok(Heard { made, isolation, places })
}

impl Held {
    /// Notes what was heard, and says what there is.
    pub(super) fn take(&mut self, heard: Heard) -> Result<Created> {
        let Heard { made, isolation, places } = heard;
        substitute(&mut self.limits, made.by_groups, self.as_root, &isolation);
        self.made = Some(made);
        if let Some(layer) = self.required.iter().find(|layer| !isolation.has(**layer)) {
            let message = format!("the layer {layer} was asked for and is missing");
            return Err(Error::new(ErrorCode::LayerMissing, message));
        }
        let created =
            Created { isolation, limits: self.limits.clone(), places, image: Image::Host, image_digest: None };
        self.created = Some(created.clone());
        Ok(created)
    }
}
