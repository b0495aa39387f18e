//! The store on a real Consul.

use haplane_store::consul::{ConsulSettings, ConsulStore};
use haplane_testkit::consul::{Consul, Options};

use crate::contract::{self, Bench, Benches};

pub(crate) fn open(url: &str, root: &str) -> ConsulStore {
    let settings = ConsulSettings {
        address: url.parse().unwrap(),
        ..ConsulSettings::default()
    };
    let prefix = |name: &str| format!("{root}/{name}").parse().unwrap();
    ConsulStore::new(settings, prefix("state"), prefix("log")).unwrap()
}

pub(crate) struct OnePrefix<'a> {
    consul: &'a Consul,
    root: String,
}

impl<'a> Benches for &'a Consul {
    type Bench = OnePrefix<'a>;

    async fn fresh(&self, name: &str) -> OnePrefix<'a> {
        let root = name.to_owned();
        // Neighbours that a careless prefix would reach.
        self.put(&format!("{root}/state2/neighbour"), "maint").await;
        self.put(&format!("{root}/state-old"), "maint").await;
        OnePrefix { consul: self, root }
    }
}

impl Bench for OnePrefix<'_> {
    type Store = ConsulStore;

    fn open(&self) -> ConsulStore {
        open(&self.consul.url(), &self.root)
    }

    async fn put(&self, path: &str, text: &str) {
        self.consul
            .put(&format!("{}/state/{path}", self.root), text)
            .await;
    }

    async fn delete(&self, path: &str) {
        self.consul
            .delete(&format!("{}/state/{path}", self.root))
            .await;
    }
}

#[tokio::test]
async fn consul_keeps_the_contract() {
    let consul = Consul::start(Options::new()).await;
    contract::keep(&&consul).await;
}
