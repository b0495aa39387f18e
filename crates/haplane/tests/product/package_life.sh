# One life of the package, in a throw-away layer over this machine. Run by packages.rs in mount
# and process namespaces of its own, as: package_life.sh LAYER FIRST.deb SECOND.deb CHECKS HTTP
layer=$1 first=$2 second=$3 checks=$4 http=$5

fail() { echo "package_life: $*" >&2; exit 1; }

if [ "${IN_LAYER-}" != yes ]; then
    mount -t tmpfs none "$layer"
    mkdir "$layer/upper" "$layer/work" "$layer/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
    mount -t proc proc "$layer/root/proc"
    mount --bind /dev "$layer/root/dev"
    mkdir "$layer/root/given"
    cp "$first" "$layer/root/given/first.deb"
    cp "$second" "$layer/root/given/second.deb"
    cp "$0" "$layer/root/given/life.sh"
    IN_LAYER=yes exec chroot "$layer/root" sh -eu /given/life.sh / /given/first.deb /given/second.deb "$checks" "$http"
fi

export DEBIAN_FRONTEND=noninteractive
rm -rf /etc/haplane /var/lib/haplane

dpkg --no-triggers --install "$first"
getent passwd haplane >/dev/null || fail "no user haplane"
getent passwd haplane-sync >/dev/null || fail "no user haplane-sync"
[ "$(stat -c %U:%G:%a /var/lib/haplane)" = haplane:haplane:750 ] || fail "the state folder: $(stat /var/lib/haplane)"
[ ! -e /etc/systemd/system/multi-user.target.wants/haplane-agent.service ] || fail "enabled without being asked"
/usr/bin/haplane --version

# Root writes desired state, the agent's own user reads it: as the configuration is shipped.
haplane init
haplane set canary drain --force
setpriv --reuid=haplane --regid=haplane --clear-groups \
    haplane agent --listen "$checks" --http-listen "$http" 2>/tmp/agent.log &
agent=$!
tries=0
until timeout 1 sh -c "haplane wait --agents http://$http --timeout 1s" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 50 ] || fail "the agent is not ready: $(cat /tmp/agent.log)"
    kill -0 $agent || fail "the agent ended: $(cat /tmp/agent.log)"
    sleep 0.1
done
kill $agent
wait $agent || fail "the agent did not end well: $(cat /tmp/agent.log)"

echo "# ours" >>/etc/haplane/haplane.toml
dpkg --no-triggers --install "$second"
grep -q '^# ours$' /etc/haplane/haplane.toml || fail "an upgrade lost the configuration"
dpkg-query --show haplane | grep -q 1.0.1 || fail "not upgraded"
haplane show canary | grep -q drain || fail "an upgrade lost desired state"

dpkg --remove haplane
[ ! -e /usr/bin/haplane ] || fail "the program is still there"
[ -e /etc/haplane/haplane.toml ] || fail "removing took the configuration"
[ -d /var/lib/haplane/state ] || fail "removing took desired state"

dpkg --purge haplane
for left in /etc/haplane /var/lib/haplane /var/lib/haplane-sync /usr/share/haplane /usr/share/doc/haplane; do
    [ ! -e $left ] || fail "purging left $left"
done
