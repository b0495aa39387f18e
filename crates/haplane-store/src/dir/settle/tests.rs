use super::*;

/// A folder as a test tells it, with its own clock.
struct Scene {
    belief: Belief,
    root: Identity,
    begun: Instant,
    at: Duration,
    config_map: Option<PathBuf>,
}

impl Scene {
    fn with(keys: &[(&str, &str)]) -> Self {
        let mut scene = Self {
            belief: Belief::default(),
            root: (1, 1),
            begun: Instant::now(),
            at: Duration::ZERO,
            config_map: None,
        };
        let (_, settled) = scene.look(keys, &[]);
        assert!(settled.is_settled);
        scene
    }

    fn later(&mut self, ms: u64) -> &mut Self {
        self.at += Duration::from_millis(ms);
        self
    }

    /// The marker is always there; folders beside the root are numbered by `folders`.
    fn look(&mut self, keys: &[(&str, &str)], folders: &[(&str, u64)]) -> (Vec<String>, Settled) {
        let stamp = super::super::stamp::Stamp::of(&std::fs::metadata("/proc/self/exe").unwrap());
        let file = |text: &str| File {
            stamp,
            value: text.as_bytes().to_vec(),
        };
        let mut files: BTreeMap<String, File> = keys
            .iter()
            .map(|(path, text)| ((*path).to_owned(), file(text)))
            .collect();
        files.insert(marker::PATH.to_owned(), file("m1"));
        let others = folders
            .iter()
            .map(|(path, n)| ((*path).to_owned(), (1, *n)));
        let ground = Ground {
            folders: [(String::new(), self.root)]
                .into_iter()
                .chain(others)
                .collect(),
            config_map: self.config_map.clone(),
        };
        // The clock of the day is far behind what wrote the files: it must not matter.
        let clock = SystemTime::UNIX_EPOCH;
        let now = self.begun + self.at;
        let settled = self.belief.settle(&mut files, ground, now, clock);
        files.remove(marker::PATH);
        let text = |(path, file): (String, File)| {
            format!("{path}={}", String::from_utf8(file.value).unwrap())
        };
        (files.into_iter().map(text).collect(), settled)
    }
}

#[test]
fn gains_and_changes_count_at_once_and_one_loss_after_two_steps() {
    let mut scene = Scene::with(&[("canary", "drain")]);
    let (seen, settled) = scene
        .later(1)
        .look(&[("canary", "maint"), ("x", "10%")], &[]);
    assert_eq!(
        (seen.join(" ").as_str(), settled.is_settled),
        ("canary=maint x=10%", true)
    );
    assert!(!scene.later(1).look(&[("x", "10%")], &[]).1.is_settled);
    assert!(!scene.later(90).look(&[("x", "10%")], &[]).1.is_settled);
    let (seen, settled) = scene.later(10).look(&[("x", "10%")], &[]);
    assert_eq!(
        (seen.join(" ").as_str(), settled.is_settled),
        ("x=10%", true)
    );
}

#[test]
fn an_emptied_file_keeps_its_value_for_a_while_whatever_the_clock_says() {
    let mut scene = Scene::with(&[("canary", "drain")]);
    for _ in 0..9 {
        let (seen, settled) = scene.later(1_000).look(&[("canary", "")], &[]);
        assert_eq!(seen, ["canary=drain"]);
        assert!(settled.is_settled);
    }
    assert!(
        scene
            .look(&[("canary", " \n")], &[])
            .1
            .held
            .unwrap()
            .contains("canary")
    );
    let (seen, settled) = scene.later(3_000).look(&[("canary", "")], &[]);
    assert_eq!((seen, settled.held), (vec!["canary=".to_owned()], None));
    // A new one never said anything.
    assert!(
        !scene
            .later(1)
            .look(&[("canary", ""), ("x", "")], &[])
            .1
            .is_settled
    );
    assert!(
        scene
            .later(100)
            .look(&[("canary", ""), ("x", "")], &[])
            .1
            .is_settled
    );
}

#[test]
fn many_keys_at_once_are_gone_when_nothing_comes_back() {
    let names: Vec<String> = (10..50).map(|n| format!("web/{n}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "drain")).collect();
    let mut scene = Scene::with(&all);
    // A folder that is being filled again.
    for filled in (0..40).step_by(5) {
        let (seen, settled) = scene.later(9_000).look(&all[..filled], &[]);
        assert_eq!(seen.len(), 40, "{settled:?}");
        assert_eq!(settled.held.is_some(), filled < 30);
        if filled >= 25 {
            break;
        }
    }
    assert_eq!(scene.later(9_999).look(&all[..25], &[]).0.len(), 40);
    assert_eq!(scene.later(1).look(&all[..25], &[]).0.len(), 25);
}

#[test]
fn a_folder_in_the_place_of_another_one_waits_and_an_empty_one_says_nothing() {
    let keys = [("a", "drain"), ("zone/b", "maint")];
    let mut scene = Scene::with(&keys);
    scene.look(&keys, &[("zone", 2)]);
    // The mount of `zone` is lost.
    for _ in 0..10 {
        let (seen, settled) = scene.later(60_000).look(&[("a", "drain")], &[("zone", 3)]);
        assert_eq!(seen.len(), 2);
        assert!(settled.held.unwrap().contains("\"zone\""));
    }
    // Removed, it is gone as any key is.
    scene.look(&[("a", "drain")], &[]);
    assert_eq!(scene.later(100).look(&[("a", "drain")], &[]).0.len(), 1);

    let mut scene = Scene::with(&keys);
    scene.root = (1, 9);
    assert_eq!(scene.later(1).look(&[("new", "50%")], &[]).0.len(), 3);
    assert_eq!(
        scene
            .later(9_990)
            .look(&[("new", "50%")], &[("more", 4)])
            .0
            .len(),
        3
    );
    assert_eq!(scene.later(9).look(&[("new", "50%")], &[]).0.len(), 3);
    let (seen, settled) = scene.later(1).look(&[("new", "50%")], &[]);
    assert_eq!((seen, settled.held), (vec!["new=50%".to_owned()], None));
}

#[test]
fn a_folder_in_the_place_of_a_key_says_nothing_until_it_holds_keys() {
    let mut scene = Scene::with(&[("zone", "drain"), ("x", "10%")]);
    for _ in 0..3 {
        let (seen, settled) = scene.later(60_000).look(&[("x", "10%")], &[("zone", 5)]);
        assert_eq!(seen.len(), 2);
        assert!(settled.held.is_some());
    }
    scene.look(&[("x", "10%"), ("zone/b", "maint")], &[("zone", 5)]);
    let (seen, settled) = scene
        .later(100)
        .look(&[("x", "10%"), ("zone/b", "maint")], &[("zone", 5)]);
    assert_eq!(seen, ["x=10%", "zone/b=maint"]);
    assert!(settled.is_settled && settled.held.is_none());
}

#[test]
fn a_swapped_config_map_counts_at_once() {
    let names: Vec<String> = (0..40).map(|n| format!("web/{n}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "drain")).collect();
    let mut scene = Scene::with(&all);
    scene.config_map = Some("..1".into());
    let (seen, settled) = scene.later(1).look(&[("x", "10%")], &[("web", 7)]);
    assert_eq!(seen, ["x=10%"]);
    assert!(settled.is_settled && settled.held.is_none());
}

#[test]
fn without_the_marker_nothing_is_lost() {
    let mut scene = Scene::with(&[("canary", "drain")]);
    for _ in 0..3 {
        scene.at += Duration::from_mins(1);
        let mut files = BTreeMap::new();
        let (now, clock) = (scene.begun + scene.at, SystemTime::now());
        let settled = scene
            .belief
            .settle(&mut files, Ground::default(), now, clock);
        assert!(files.contains_key("canary") && !files.contains_key(marker::PATH));
        assert!(settled.held.is_some());
    }
}

#[test]
fn what_a_command_removed_is_gone_at_once() {
    let names: Vec<String> = (0..40).map(|n| format!("web/{n}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "drain")).collect();
    let mut scene = Scene::with(&all);
    for name in &names[..30] {
        scene.belief.forget(name);
    }
    let (seen, settled) = scene.later(1).look(&all[30..], &[]);
    assert_eq!((seen.len(), settled.is_settled), (10, true));
}
