//! Other backends than the engine's own: sandboxes of several can lie in one data folder.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use glovebox_core::{Backend, Error, ErrorCode, Result, SandboxId, SandboxRecord};

use crate::Engine;

type Make = dyn Fn(&str) -> Result<Arc<dyn Backend>> + Send + Sync;

/// Backends that are made when a sandbox of theirs is met.
#[derive(Clone)]
pub(crate) struct Others {
    make: Arc<Make>,
    made: Arc<Mutex<HashMap<String, Arc<dyn Backend>>>>,
}

impl Others {
    pub(crate) fn get(&self, name: &str) -> Result<Arc<dyn Backend>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = made.get(name) {
            return Ok(backend.clone());
        }
        let backend = (self.make)(name)?;
        made.insert(name.to_owned(), backend.clone());
        Ok(backend)
    }
}

impl Engine {
    /// Reaches living sandboxes of other backends too. `make` is called once for each that a sandbox is met of, with its name.
    #[must_use]
    pub fn with_others(self, make: impl Fn(&str) -> Result<Arc<dyn Backend>> + Send + Sync + 'static) -> Self {
        self.having(Others { make: Arc::new(make), made: Arc::default() })
    }

    /// This engine with the backend that made a sandbox.
    pub(crate) fn of(&self, record: &SandboxRecord) -> Result<Engine> {
        self.of_backend(&record.backend, record.sandbox)
    }

    /// This engine with the backend of this name, which a sandbox is of.
    pub(crate) fn of_backend(&self, theirs: &str, sandbox: SandboxId) -> Result<Engine> {
        if theirs == self.backend_name() {
            return Ok(self.clone());
        }
        let Some(others) = self.others() else {
            let message = format!("the sandbox {sandbox} belongs to the backend {theirs}");
            return Err(Error::new(ErrorCode::WrongState, message).hint(format!("add --backend {theirs}")));
        };
        Ok(self.on(others.get(theirs)?))
    }
}
