use axum::body::{Body, to_bytes};
use axum::http::Request;
#[cfg(feature = "cpu-profile")]
use haplane_testkit::pprof::Profile;
#[cfg(feature = "cpu-profile")]
use std::sync::atomic::{AtomicBool, Ordering};
use tower_service::Service;

use super::*;

async fn get_from(router: &mut Router, path: &str) -> (StatusCode, Vec<u8>) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router.call(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 24).await.unwrap();
    (status, body.to_vec())
}

#[test]
fn who_is_not_on_this_machine_gets_one_only_where_that_is_asked_for() {
    let at = |address: &str, asked_for| Access::at(address.parse().unwrap(), asked_for);
    assert_eq!(at("127.0.0.1:9778", false), Access::Open);
    assert_eq!(at("[::1]:9778", false), Access::Open);
    assert_eq!(at("0.0.0.0:9778", false), Access::Closed);
    assert_eq!(at("192.0.2.1:9778", false), Access::Closed);
    assert_eq!(at("192.0.2.1:9778", true), Access::Open);
}

#[tokio::test]
async fn profiles_are_closed_bounded_and_say_so() {
    for path in ["/debug/pprof/profile", "/debug/pprof/heap"] {
        let (status, text) = get_from(&mut routes(Access::Closed), path).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!(String::from_utf8(text).unwrap().contains("pprof = true"));
    }
    for seconds in ["0", "61"] {
        let path = format!("/debug/pprof/profile?seconds={seconds}");
        let (status, _) = get_from(&mut routes(Access::Open), &path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
}

#[cfg(not(feature = "cpu-profile"))]
#[tokio::test]
async fn a_build_without_profiles_says_how_to_get_one() {
    let (status, text) = get_from(&mut routes(Access::Open), "/debug/pprof/profile").await;
    assert_eq!(status, StatusCode::NOT_IMPLEMENTED);
    assert!(String::from_utf8(text).unwrap().contains("cpu-profile"));
}

#[cfg(feature = "cpu-profile")]
#[tokio::test]
async fn a_busy_process_shows_in_its_profile_and_one_is_taken_at_a_time() {
    #[inline(never)]
    fn keep_busy(busy: &AtomicBool) {
        while busy.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }

    let mut router = routes(Access::Open);
    let mut other = router.clone();
    let busy = Arc::new(AtomicBool::new(true));
    let worker = std::thread::spawn({
        let busy = Arc::clone(&busy);
        move || keep_busy(&busy)
    });
    let path = "/debug/pprof/profile?seconds=1";
    let ((status, profile), (refused, _)) =
        tokio::join!(get_from(&mut router, path), get_from(&mut other, path));
    assert_eq!(refused, StatusCode::CONFLICT);
    busy.store(false, Ordering::Relaxed);
    worker.join().unwrap();
    assert_eq!(status, StatusCode::OK);

    let profile = Profile::decode(&profile);
    let samples = profile.total(0);
    assert!(
        samples >= 3,
        "a busy second has about 99 samples, fewer on a busy machine; not {samples}"
    );
    let own_name = concat!(module_path!(), "::");
    assert!(
        profile
            .names()
            .iter()
            .any(|name| name.starts_with(own_name) && name.ends_with("::keep_busy")),
        "it brings whole names: {:?}",
        profile.names()
    );
    let program = std::env::current_exe().unwrap();
    let functions = profile.functions_of(program.to_str().unwrap());
    assert!(
        functions.iter().any(|name| name.contains("keep_busy")),
        "the function that was busy is named: {functions:?}"
    );
}
