use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::SandboxId;

/// How many in this process hold on to each living sandbox. One that is ended and started again is the same: who took hold of it before
/// lets go of it once, and takes it from nobody who did so later.
#[derive(Debug, Default)]
pub struct Holders(Mutex<HashMap<SandboxId, usize>>);

impl Holders {
    /// Notes that one more holds on to a sandbox.
    pub fn add(&self, id: SandboxId) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default() += 1;
    }

    /// Notes that one lets go of a sandbox. Says whether nobody holds on to it any more.
    pub fn let_go(&self, id: SandboxId) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = all.get(&id).map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => all.remove(&id),
            _ => all.insert(id, left),
        };
        left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_who_lets_go_is_told_so() {
        let (holders, one, other) = (Holders::default(), SandboxId::new(), SandboxId::new());
        for id in [one, one, other] {
            holders.add(id);
        }
        assert!(!holders.let_go(one));
        assert!(holders.let_go(other) && holders.let_go(one));
        assert!(holders.let_go(one), "one who never held on is nobody to wait for");
    }
}
