# Boots a machine of its own for one script: systemd is process 1, and the rest is this machine seen
# through a layer that is thrown away. Its network is loopback alone, so every port is free.
#
#   boot.sh enter LAYER GIVEN PEERS    as root: runs GIVEN/script there; it says into GIVEN/said
#
# Ends with the script's own status.
set -eu
step=$1 layer=$2 given=$3 peers=$4
root=$layer/root

# Namespaces, and a place of its own among the control groups, which systemd wants to rule.
enter() {
    groups=$(findmnt --noheadings --first-only --types cgroup2 --output TARGET) ||
        { echo "no cgroup2 is mounted here, which systemd needs" >&2; exit 1; }
    group=$groups/haplane-machine-$$
    mkdir "$group"
    status=0
    sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" \
        unshare --mount --propagation private --pid --fork --kill-child --net --uts --ipc --cgroup \
        sh "$0" boot "$layer" "$given" "$peers" || status=$?
    find "$group" -depth -type d -exec rmdir {} + || true
    exit $status
}

file_systems() {
    mount -t tmpfs none "$layer"
    mkdir "$layer/upper" "$layer/work" "$root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mkdir -p "$root/given" "$given/peers"
    mount --bind "$given" "$root/given"
    mount --bind "$peers" "$root/given/peers"
}

devices() {
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for device in null zero full random urandom tty; do
        : >"$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
}

# Of this machine's services none is started, whatever it has enabled; and haplane was never here.
units() {
    rm -rf "$root"/etc/systemd/system/*.wants "$root"/etc/systemd/system/*.requires
    rm -f "$root/usr/sbin/policy-rc.d" # that of container images forbids all
    rm -rf "$root/etc/haplane" "$root/var/lib/haplane" "$root/var/lib/haplane-sync" "$root/etc/haproxy"
    cat >"$root/etc/systemd/system/script.service" <<'UNIT'
[Unit]
Requires=basic.target
After=basic.target
# The machine ends with the script, and with its status.
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/sh -eu -c '. /given/words.sh; . /given/script'
TimeoutStartSec=150
StandardOutput=append:/given/said
StandardError=append:/given/said
UNIT
}

boot() {
    file_systems
    devices
    units
    cd "$root"
    mkdir -p old
    pivot_root . old
    umount -l /old
    mount --make-rshared / # what the kernel's own process 1 does: credentials need it
    exec env -i container=haplane PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        /lib/systemd/systemd --system --unit=script.service --log-target=journal --show-status=0
}

"$step"
