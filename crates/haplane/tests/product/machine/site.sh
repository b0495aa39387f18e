# A whole site on one machine, every part under its shipped unit: Consul with ACL, HAProxy as Debian
# runs it with the drop-in that seeds it, the agent, the synchroniser, the heartbeat. Run by units.rs.

consul=/given/peers/bin/consul
management=5f0e1c9e-6d2c-4a55-9f3e-0c1f6f1f8a11
export CONSUL_HTTP_TOKEN=$management

# --- Consul, and a token for each job --------------------------------------------------------

cat >/etc/consul.json <<JSON
{"acl": {"enabled": true, "default_policy": "deny", "tokens": {"master": "$management", "agent": "$management"}}}
JSON
systemd-run --quiet --unit consul $consul agent -dev -config-file /etc/consul.json
within 20 $consul acl policy list

token() { # POLICY FILE: a new token with a shipped policy
    $consul acl policy create -name "$1" -rules "@/usr/share/haplane/consul-acl/$1.hcl" >/dev/null
    $consul acl token create -description "$1" -policy-name "$1" | sed -n 's/^SecretID: *//p' >"$2"
}
dpkg --no-triggers --install /given/haplane.deb
token agent /etc/haplane/token
chown root:haplane /etc/haplane/token
chmod 0640 /etc/haplane/token
token writer /etc/haplane/writer.token
chmod 0600 /etc/haplane/writer.token
cat >/etc/haplane/haplane.toml <<'TOML'
store = "consul:http://127.0.0.1:8500"
node = "lb-01"
[consul]
token_file = "/etc/haplane/token"
[haproxy]
socket = "/run/haproxy/haplane.sock"
[sync]
socket = "/run/haproxy/admin.sock"
reconcile = "1s"
[[pool]]
name = "shop"
backend = "shop"
source = "file:/etc/haplane/shop.hosts"
slots = "shop-"
TOML
haplane() { CONSUL_HTTP_TOKEN=$(cat /etc/haplane/writer.token) /usr/bin/haplane "$@"; }
haplane init
haplane set web/a drain --force --reason "before HAProxy ever ran"

# --- HAProxy, seeded before it starts --------------------------------------------------------

service=/given/peers/haproxy-2.6/haproxy.service
[ -e $service ] || service=/lib/systemd/system/haproxy.service
cp $service /etc/systemd/system/haproxy.service
grep -q '^ExecReload=' /etc/systemd/system/haproxy.service || fail "this is not the unit that the drop-in is for"
mkdir -p /etc/systemd/system/haproxy.service.d /etc/haproxy /var/lib/haproxy/dev
cp /usr/share/haplane/systemd/haproxy.service.d/haplane-seed.conf /etc/systemd/system/haproxy.service.d/
[ -e /usr/sbin/haproxy ] || ln -s /given/peers/bin/haproxy-2.6 /usr/sbin/haproxy
getent passwd haproxy >/dev/null || adduser --quiet --system --group --no-create-home haproxy
install -d -o haproxy -g haproxy -m 2775 /run/haproxy
cat >/etc/haproxy/haproxy.cfg <<'CFG'
global
    user haproxy
    group haproxy
    stats socket /run/haproxy/admin.sock mode 660 group haplane-sync level admin
    stats socket /run/haproxy/haplane.sock mode 660 group haplane level user
    server-state-file /run/haproxy/haplane.state  # haplane: seed
    max-spread-checks 1
defaults
    mode http
    timeout connect 1s
    timeout client 5s
    timeout server 5s
    load-server-state-from-file global
    default-server agent-check agent-inter 1s agent-addr 127.0.0.1 agent-port 9777 weight 100
backend web
    server a 127.0.0.1:81 agent-send "web/a\n"
    server b 127.0.0.1:82 agent-send "web/b\n"
backend shop
    server-template shop- 1-3 127.0.0.1:1 disabled agent-send "@free\n"
backend haplane-heartbeat
    server self 127.0.0.1:9 agent-send "haplane-heartbeat/self\n"
CFG
systemctl daemon-reload
# Nobody answers agent checks yet: what HAProxy knows, it knows from the seed.
systemctl start haproxy
admin_of() { # ROW: srv_admin_state of `show servers state`
    python3 - "$1" <<'PYTHON'
import socket, sys
backend, server = sys.argv[1].split("/")
with socket.socket(socket.AF_UNIX) as haproxy:
    haproxy.connect("/run/haproxy/admin.sock")
    haproxy.sendall(b"show servers state\n")
    text = haproxy.makefile().read()
rows = (line.split() for line in text.splitlines())
print(next(row[6] for row in rows if len(row) > 6 and (row[1], row[3]) == (backend, server)))
PYTHON
}
is 8 "$(admin_of web/a)" "web/a before any agent check (8 is drained)"
is 0 "$(admin_of web/b)" "web/b before any agent check"

# --- the agent ---------------------------------------------------------------------------------

systemctl start haplane-agent
in_the_fleet() { haplane status --json | grep -q '"node": *"lb-01"'; }
within 30 in_the_fleet # Consul takes its time
# Soon, although HAProxy said of its free slots until now that nobody answers.
haplane wait --timeout 7s
agent=$(property haplane-agent MainPID)
journalctl --unit haplane-agent --output cat PRIORITY=6 | grep -q '^answering listen=127.0.0.1:9777' ||
    fail "the journal does not say it all: $(journalctl --unit haplane-agent)"
shut_in() { # UNIT USER: what the kernel says of its process
    status=/proc/$(property "$1" MainPID)/status
    [ "$2" = any ] || is "$(id -u "$2")" "$(awk '/^Uid:/ { print $3 }' $status)" "the user of $1"
    is 0 "$(awk '/^Uid:/ { print ($3 == 0) }' $status)" "whether $1 is root"
    is 0000000000000000 "$(awk '/^CapEff:/ { print $2 }' $status)" "what $1 may do"
    is 0000000000000000 "$(awk '/^CapBnd:/ { print $2 }' $status)" "what $1 could gain"
    is 1 "$(awk '/^NoNewPrivs:/ { print $2 }' $status)" "NoNewPrivs of $1"
    is 2 "$(awk '/^Seccomp:/ { print $2 }' $status)" "the filter of system calls of $1"
    awk '$5 == "/" { split($6, options, ","); exit options[1] != "ro" }' "${status%status}mountinfo" ||
        fail "$1 can write to the file system"
}
shut_in haplane-agent haplane
systemctl reload haplane-agent
haplane wait --timeout 10s
is "$agent" "$(property haplane-agent MainPID)" "the agent after a reload"

# --- a reload of HAProxy: seeded before the new process is there ---------------------------------

haplane set web/b maint --wait --timeout 10s
systemctl stop haplane-agent
is success "$(property haplane-agent Result)" "the end of the agent"
systemctl reload haproxy
seeded() { [ "$(admin_of web/b)" = 1 ] || [ "$(admin_of web/b)" = 9 ]; }
within 10 seeded
is 8 "$(admin_of web/a)" "web/a after a reload without an agent"
grep -q 'web.*b' /run/haproxy/haplane.state || fail "the seed does not name web/b: $(cat /run/haproxy/haplane.state)"
# Where HAProxy refuses its configuration there is no reload, and no new seed.
cp /etc/haproxy/haproxy.cfg /tmp/good.cfg
echo "nonsense" >>/etc/haproxy/haproxy.cfg
before=$(stat -c %Y%i /run/haproxy/haplane.state)
! systemctl reload haproxy 2>/dev/null || fail "a broken configuration was loaded"
is "$before" "$(stat -c %Y%i /run/haproxy/haplane.state)" "the seed after a refused reload"
is active "$(systemctl is-active haproxy)" "HAProxy after a refused reload"
cp /tmp/good.cfg /etc/haproxy/haproxy.cfg

# --- the watchdog: an agent that hangs is started again -------------------------------------------

mkdir /run/systemd/system/haplane-agent.service.d
printf '[Service]\nWatchdogSec=1\nTimeoutStopSec=1\nTimeoutAbortSec=1\n' >/run/systemd/system/haplane-agent.service.d/fast.conf
systemctl daemon-reload
systemctl start haplane-agent
hung=$(property haplane-agent MainPID)
fed=$(property haplane-agent WatchdogTimestampMonotonic)
fed_again() { [ "$(property haplane-agent WatchdogTimestampMonotonic)" != "$fed" ]; }
within 3 fed_again
kill -STOP "$hung"
back() { [ "$(property haplane-agent NRestarts)" -ge 1 ] && systemctl is-active haplane-agent; }
within 15 back
haplane wait --timeout 10s

# --- the synchroniser ------------------------------------------------------------------------------

printf '127.0.0.1:91 id=one\n127.0.0.1:92 id=two\n' >/etc/haplane/shop.hosts
systemctl start haplane-sync
shut_in haplane-sync haplane-sync
served() { haplane slots --json | grep -q '"homeless": *\[\]' && haplane status --json | grep -q shop/one; }
within 15 served

# --- the heartbeat, with a token of its own, as docs/alerts.md says -----------------------------------

mkdir /etc/systemd/system/haplane-heartbeat.service.d
cp /given/heartbeat.conf /etc/systemd/system/haplane-heartbeat.service.d/token.conf
systemctl daemon-reload
systemctl start haplane-heartbeat
shut_in haplane-heartbeat any
beats() { python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:9781/metrics").read().decode())'; }
beaten() { beats | grep -q '^haplane_heartbeats_total{result="ok"} [1-9]'; }
within 15 beaten

# --- what the runbooks tell somebody at night to type -------------------------------------------------

printf '#!/bin/sh\nCONSUL_HTTP_TOKEN=%s exec %s "$@"\n' $management $consul >/usr/local/bin/consul
chmod 0755 /usr/local/bin/consul
while read -r line; do
    case $line in
        *promtool*) continue ;; # no Prometheus here
        *curl* | *socat*) tool=$(expr "$line" : '.*\(curl\|socat\)') && command -v "$tool" >/dev/null || continue ;;
    esac
    status=0
    CONSUL_HTTP_TOKEN=$(cat /etc/haplane/writer.token) timeout 30 sh -c "$line" >/tmp/typed 2>&1 </dev/null || status=$?
    case "$status $line" in
        0\ * | 6\ haplane\ audit*) ;;
        *) fail "status $status of: $line ($(tail -5 /tmp/typed))" ;;
    esac
done </given/commands

# --- the end -------------------------------------------------------------------------------------------

for unit in haplane-heartbeat haplane-sync haplane-agent; do
    systemctl stop $unit
    is success "$(property $unit Result)" "the end of $unit"
done
