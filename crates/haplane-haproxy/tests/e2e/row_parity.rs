//! Rows: those that we derive from a configuration against those that the process shows.

use haplane_haproxy::HaproxyVersion;
use haplane_haproxy::cfg::{Config, Context, Environment, Severity, SourceFile};
use haplane_haproxy::forecast::StateFiles;
use haplane_haproxy::server_state::read_answer;
use haplane_testkit::haproxy::{self, Haproxy, Version};

use crate::compare::assert_same;
use crate::generate;

/// The configuration as HAProxy was given it.
pub(crate) fn read(haproxy: &Haproxy) -> Config {
    let text = std::fs::read(haproxy.dir().join("haproxy.cfg")).unwrap();
    let version = match haproxy.version() {
        Version::V26 => HaproxyVersion::new(2, 6, 12),
        Version::V28 => HaproxyVersion::new(2, 8, 25),
    };
    let context = Context {
        environment: Environment::from_pairs(std::env::vars()),
        version: Some(version),
    };
    Config::parse(vec![SourceFile::new("haproxy.cfg", text)], &context)
}

async fn parity(what: &str, version: Version, sections: &str) -> usize {
    let haproxy = Haproxy::start(version, haproxy::Config::new(sections)).await;
    let config = read(&haproxy);
    let complaints: Vec<_> = config
        .diagnostics()
        .iter()
        .filter(|one| one.severity != Severity::Note)
        .collect();
    assert!(
        complaints.is_empty(),
        "{what}: HAProxy takes it, we say {complaints:?}"
    );
    let shown = read_answer(&haproxy.command("show servers state").await).unwrap();
    assert_same(what, &config, &StateFiles::default(), &shown)
}

#[tokio::test]
async fn the_corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 8);
    for version in Version::ALL {
        for file in &files {
            let text = std::fs::read_to_string(file).unwrap();
            let rows = parity(
                &format!("{} on {version:?}", file.display()),
                version,
                &text,
            )
            .await;
            assert!(rows > 0, "{}", file.display());
        }
    }
}

#[tokio::test]
async fn generated_configurations() {
    let mut rows = 0;
    for seed in 0..crate::cases(24) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let text = generate::configuration(&mut rng).render(&mut rng, "");
        let version = Version::ALL[rng.usize(0..2)];
        rows += parity(&format!("seed {seed} on {version:?}"), version, &text).await;
    }
    assert!(rows > 100, "{rows} rows compared");
}
