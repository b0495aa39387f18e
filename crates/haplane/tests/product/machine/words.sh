# What the scripts that run in a machine of their own have in common. A script that fails says what the
# machine was doing.

tell() {
    systemctl --no-pager --lines 0 status 'ha*' consul 2>/dev/null || true
    journalctl --boot --no-pager --lines 80 || true
}
trap '[ $? = 0 ] || tell' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# within SECONDS COMMAND…: whether it succeeds in time, tried again and again.
within() {
    seconds=$1
    shift
    tries=0
    until "$@" >/tmp/within 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt $((seconds * 10)) ] || fail "not within $seconds s: $* ($(tail -3 /tmp/within))"
        sleep 0.1
    done
}

# is EXPECTED GOT WHAT
is() { [ "$1" = "$2" ] || fail "$3 is '$2', not '$1'"; }

property() { systemctl show --property "$2" --value "$1"; } # UNIT NAME
