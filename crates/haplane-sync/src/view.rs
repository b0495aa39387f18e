//! `/v1/pools`: the shapes that other programs read. Fields may be added, never renamed.

use haplane_core::slots::hold::Held;
use haplane_core::slots::{Health, Homeless, Mode, Transition};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::board::{Board, PoolStatus, ProcessStatus, SlotView};
use crate::pool::Pool;

/// All pools.
pub fn pools(board: &Board) -> Value {
    let processes = board.processes();
    board
        .pools
        .iter()
        .map(|pool| one_pool(board, pool, processes.iter()))
        .collect()
}

fn one_pool<'a>(
    board: &Board,
    pool: &Pool,
    processes: impl Iterator<Item = (&'a crate::settings::SocketPath, &'a ProcessStatus)>,
) -> Value {
    let settings = &pool.settings;
    let standing = pool.standing();
    let mode = if settings.policy.mode == Mode::Slots {
        "slots"
    } else {
        "dynamic"
    };
    let refused: Vec<_> = standing
        .refused
        .iter()
        .map(|refused| json!({ "place": refused.place.word(), "number": refused.place.number(), "why": refused.why }))
        .collect();
    let processes: Vec<_> = processes
        .map(|(path, process)| one_process(board, pool, &path.to_string(), process))
        .collect();
    json!({
        "pool": settings.name,
        "backend": settings.policy.backend.as_str(),
        "mode": mode,
        "source": settings.source.to_string(),
        "zone": settings.zone,
        "instances": standing.instances,
        "held": standing.held.as_ref().map(|held| held_view(board, held)),
        "last_read": standing.last_read.map(|at| wall(board, at)),
        "last_change": wall(board, standing.last_change),
        "refused": refused,
        "duplicates": standing.twins,
        "flapping": flapping(board, pool),
        "processes": processes,
    })
}

/// A held change.
pub fn held_view(board: &Board, held: &Held) -> Value {
    json!({
        "reason": held.reason.as_str(),
        "detail": held.detail,
        "had": held.had,
        "has": held.has,
        "since": wall(board, held.since),
        "until": held.until.map(|at| wall(board, at)),
    })
}

fn one_process(board: &Board, pool: &Pool, socket: &str, process: &ProcessStatus) -> Value {
    let empty = PoolStatus::default();
    let status = process.pools.get(&pool.settings.name).unwrap_or(&empty);
    let homeless: Vec<_> = status
        .homeless
        .iter()
        .map(|homeless| homeless_view(board, homeless))
        .collect();
    let ids = |list: &[haplane_core::slots::InstanceId]| {
        list.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let full = pool.time_to_full(status.slots.len(), board.clock.now());
    json!({
        "socket": socket,
        "pid": process.pid,
        "version": process.version,
        "error": status.error.as_ref().or(process.error.as_ref()),
        "last_success": status.last_success.map(|at| wall(board, at)),
        "time_to_full_s": full.map(|time| time.as_secs()),
        "homeless": homeless,
        "damped": ids(&status.damped),
        "failing": ids(&status.failing),
        "by_hand": status.by_hand.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "contested": status.contested,
        "slots": status.slots.iter().map(|slot| slot_view(board, pool, slot)).collect::<Vec<_>>(),
    })
}

fn homeless_view(board: &Board, homeless: &Homeless) -> Value {
    json!({
        "instance": homeless.instance.id.as_str(),
        "address": homeless.instance.endpoint.to_string(),
        "since": wall(board, homeless.since),
    })
}

fn slot_view(board: &Board, pool: &Pool, slot: &SlotView) -> Value {
    let health = match slot.observed.health {
        Health::Unchecked => "unchecked",
        Health::Off => "off",
        Health::Up => "up",
        Health::Down => "down",
    };
    let flaps = slot
        .instance
        .as_ref()
        .map(|id| pool.flaps(id).len())
        .unwrap_or_default();
    json!({
        "slot": slot.server.as_str(),
        "instance": slot.instance.as_ref().map(ToString::to_string),
        "address": slot.observed.endpoint.map(|endpoint| endpoint.to_string()),
        "state": slot.stage.as_str(),
        "since": wall(board, slot.since),
        "why": slot.history.iter().rev().find_map(Transition::why),
        "admin": slot.observed.admin.as_str(),
        "health": health,
        "weight": slot.observed.weight,
        "sessions": slot.observed.sessions,
        "flaps": flaps,
        "transitions": slot.history.iter().map(|transition| transition_view(board, transition)).collect::<Vec<_>>(),
    })
}

/// Who comes and goes too often to be given a slot, with its last comings and goings.
fn flapping(board: &Board, pool: &Pool) -> Vec<Value> {
    let damped = pool
        .wanted(board.clock.now())
        .map(|wanted| wanted.damped)
        .unwrap_or_default();
    let one = |id: &haplane_core::slots::InstanceId| {
        let flaps: Vec<_> = pool
            .flaps(id)
            .iter()
            .map(|flap| json!({ "at": wall(board, flap.at), "came": flap.came }))
            .collect();
        json!({ "instance": id.as_str(), "transitions": flaps })
    };
    damped.iter().map(one).collect()
}

fn transition_view(board: &Board, transition: &Transition) -> Value {
    json!({
        "at": wall(board, transition.at),
        "state": transition.stage.as_str(),
        "instance": transition.instance.as_ref().map(ToString::to_string),
        "why": transition.why(),
    })
}

fn wall(board: &Board, at: haplane_core::slots::Moment) -> Timestamp {
    board.clock.wall(at)
}
