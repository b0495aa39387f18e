# The container's file system, /given/image, run as an engine would. Run by image.rs.

. /given/containerfile.sh
mkdir /tmp/root
mkdir /given/image/state
mount --bind /given/image /tmp/root
mount -o remount,bind,ro /tmp/root
install -d -o "${user%:*}" -g "${user#*:}" /tmp/state
mount --bind /tmp/state /tmp/root/state
# shellcheck disable=SC2086 # words
container() { chroot --userspec="$user" /tmp/root $entrypoint "$@"; }

container --version
export HAPLANE_STORE=dir:/state
container init
container set canary drain --force
# shellcheck disable=SC2086
chroot --userspec="$user" /tmp/root $entrypoint $cmd &
agent=$!
ask() {
    python3 - <<'PYTHON'
import socket
with socket.create_connection(("127.0.0.1", 9777), 2) as agent:
    agent.sendall(b"web/a canary\n")
    print(agent.makefile().read(), end="")
PYTHON
}
answers() { [ "$(ask)" = drain ]; }
within 10 answers
is "${user%:*}" "$(awk '/^Uid:/ { print $3 }' "/proc/$agent/status")" "the user in the container"
[ "${user%:*}" != 0 ] || fail "the container is root"
container status
kill "$agent"
wait $agent || fail "the agent did not end well"
