use axum::body::{Body, to_bytes};
use axum::http::Request;
use tower_service::Service;

use super::*;

async fn get_from(router: &mut Router, path: &str) -> (StatusCode, Vec<u8>) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router.call(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 24).await.unwrap();
    (status, body.to_vec())
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

/// The fields of a message, as far as a profile has them: numbers and bytes.
#[cfg(feature = "cpu-profile")]
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>, u64)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        match tag % 8 {
            0 => fields.push((tag >> 3, Vec::new(), varint(&mut bytes))),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                fields.push((tag >> 3, bytes[..length].to_vec(), 0));
                bytes = &bytes[length..];
            }
            other => panic!("only numbers and bytes, not {other}"),
        }
    }
    fields
}

#[cfg(feature = "cpu-profile")]
#[tokio::test]
async fn a_busy_process_shows_in_its_profile_and_one_is_taken_at_a_time() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let mut router = routes(Access::Open);
    let mut other = router.clone();
    let busy = Arc::new(AtomicBool::new(true));
    let worker = std::thread::spawn({
        let busy = Arc::clone(&busy);
        move || {
            while busy.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
    });
    let path = "/debug/pprof/profile?seconds=1";
    let ((status, profile), (refused, _)) =
        tokio::join!(get_from(&mut router, path), get_from(&mut other, path));
    assert_eq!(refused, StatusCode::CONFLICT);
    busy.store(false, Ordering::Relaxed);
    worker.join().unwrap();
    assert_eq!(status, StatusCode::OK);

    let profile = fields(&profile);
    let all = |number| profile.iter().filter(move |field| field.0 == number);
    let samples: u64 = all(2)
        .map(|(_, sample, _)| fields(sample))
        .map(|sample| u64::from(sample.iter().find(|field| field.0 == 2).unwrap().1[0] & 0x7f))
        .sum();
    assert!(
        samples >= 3,
        "a busy second has about 99 samples, fewer on a busy machine; not {samples}"
    );
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    assert!(
        all(6).any(|(_, text, _)| text == program.as_bytes()),
        "the program's own file is among the mappings"
    );
    let mapped = all(4)
        .map(|(_, location, _)| fields(location))
        .filter(|location| location.iter().any(|field| field.0 == 2 && field.2 > 0));
    assert_ne!(mapped.count(), 0, "an address lies in a mapping");
}
