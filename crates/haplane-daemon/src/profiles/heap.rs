//! What memory is held by whom, as jemalloc samples it. The binary has to run on jemalloc, built
//! with `prof:true`, which `make profiled` sees to; sampling starts with the first profile asked
//! for, so that a second one, later, shows what has grown since.

use jemalloc_pprof::PROF_CTL;

/// Takes a profile.
pub(super) async fn profile() -> Result<Vec<u8>, String> {
    let Some(control) = PROF_CTL.as_ref() else {
        return Err("jemalloc was built without profiling".to_owned());
    };
    let mut control = control.lock().await;
    if !control.activated() {
        control
            .activate()
            .map_err(|error| format!("sampling cannot be switched on: {error}"))?;
    }
    control.dump_pprof().map_err(|error| error.to_string())
}
