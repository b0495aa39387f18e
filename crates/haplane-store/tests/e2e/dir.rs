//! The store in real folders.

use std::path::PathBuf;

use haplane_store::dir::DirStore;
use tempfile::TempDir;

use crate::contract::{self, Bench, Benches};

pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(folder.root()).unwrap();
        folder
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.beside("state")
    }

    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// A place outside of the store.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

struct Folders;

impl Benches for Folders {
    type Bench = Folder;

    async fn fresh(&self, _: &str) -> Folder {
        Folder::new()
    }
}

impl Bench for Folder {
    type Store = DirStore;

    fn open(&self) -> DirStore {
        DirStore::new(self.root())
    }

    async fn put(&self, path: &str, text: &str) {
        let file = self.file(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    async fn delete(&self, path: &str) {
        std::fs::remove_file(self.file(path)).unwrap();
    }
}

#[tokio::test]
async fn a_folder_keeps_the_contract() {
    contract::keep(&Folders).await;
}
