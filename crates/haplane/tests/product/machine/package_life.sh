# One life of the package: /given/first.deb, /given/second.deb. Run by packages.rs.

export DEBIAN_FRONTEND=noninteractive
dpkg --no-triggers --install /given/first.deb
getent passwd haplane >/dev/null || fail "no user haplane"
getent passwd haplane-sync >/dev/null || fail "no user haplane-sync"
is haplane:haplane:750 "$(stat -c %U:%G:%a /var/lib/haplane)" "the state folder"
for unit in agent sync heartbeat; do
    is disabled "$(systemctl is-enabled haplane-$unit || true)" "haplane-$unit after the installation"
    is inactive "$(systemctl is-active haplane-$unit || true)" "haplane-$unit after the installation"
done
/usr/bin/haplane --version

# Root writes desired state, the agent's own user reads it: as the configuration is shipped.
haplane init
haplane set canary drain --force
systemctl enable --now haplane-agent
haplane wait --timeout 5s
first=$(property haplane-agent MainPID)

echo "# ours" >>/etc/haplane/haplane.toml
dpkg --no-triggers --install /given/second.deb
grep -q '^# ours$' /etc/haplane/haplane.toml || fail "an upgrade lost the configuration"
dpkg-query --show haplane | grep -q 1.0.1 || fail "not upgraded"
haplane show canary | grep -q drain || fail "an upgrade lost desired state"
is active "$(systemctl is-active haplane-agent)" "the agent after an upgrade"
[ "$first" != "$(property haplane-agent MainPID)" ] || fail "the old agent runs on after an upgrade"
is inactive "$(systemctl is-active haplane-sync || true)" "what was not running, after an upgrade,"
haplane wait --timeout 5s

dpkg --remove haplane
is inactive "$(systemctl is-active haplane-agent || true)" "the agent of a removed package"
[ ! -L /etc/systemd/system/multi-user.target.wants/haplane-agent.service ] || fail "removed, and still enabled"
[ ! -e /usr/bin/haplane ] || fail "the program is still there"
[ -e /etc/haplane/haplane.toml ] || fail "removing took the configuration"
[ -d /var/lib/haplane/state ] || fail "removing took desired state"

dpkg --purge haplane
for left in /etc/haplane /var/lib/haplane /var/lib/haplane-sync /usr/share/haplane /usr/share/doc/haplane; do
    [ ! -e $left ] || fail "purging left $left"
done
