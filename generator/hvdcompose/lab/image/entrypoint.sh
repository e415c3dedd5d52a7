#!/bin/sh
# Entry point of one virtual host: sshd beside an inner dockerd (the arguments).
# /lab is a folder of the machine outside: it gives authorized_keys, and gets docker.sock and host_key.pub.
# LAB_GPUS stub GPUs; LAB_SOCKET_GID may use the socket; LAB_USER runs the engine (default root).
set -eu
user=${LAB_USER:-root}

# left by a container that was killed and is started again
rm -f /var/run/docker.pid /run/docker/containerd/containerd.pid /lab/docker.sock /run/user/1000/docker.pid

# Where the container could not be --privileged, /sys and the cgroups are read-only: the inner runc writes to both.
mount -o remount,bind,rw /sys || true
mount -o remount,bind,rw /sys/fs/cgroup || true
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
  # cgroup v2: a group with processes of its own cannot hand controllers down, so move them aside
  mkdir -p /sys/fs/cgroup/init
  xargs -rn1 < /sys/fs/cgroup/cgroup.procs > /sys/fs/cgroup/init/cgroup.procs || true
  sed -e 's/ / +/g' -e 's/^/+/' < /sys/fs/cgroup/cgroup.controllers > /sys/fs/cgroup/cgroup.subtree_control || true
else
  for group in /sys/fs/cgroup/*/; do mount -o remount,bind,rw "$group" || true; done
fi

# Stub GPUs. dockerd has the driver "nvidia" if it finds this hook on its PATH at its start.
gpus=${LAB_GPUS:-0}
# the rootless engine sees /etc through links, which its CDI scanner does not follow
cdi=/etc/cdi
[ "$user" = root ] || cdi=/opt/lab/cdi
rm -rf "$cdi" /usr/local/bin/nvidia-container-runtime-hook /usr/local/bin/nvidia-smi /opt/lab/gpus
mkdir -p /etc/docker
if [ "$gpus" -gt 0 ]; then
  ln -s /opt/lab/nvidia-container-runtime-hook /opt/lab/nvidia-smi /usr/local/bin/
  mkdir -p "$cdi" /opt/lab/gpus
  echo "{\"features\": {\"cdi\": true}, \"cdi-spec-dirs\": [\"$cdi\"]}" > /etc/docker/daemon.json
  node() { echo "{path: /dev/fakegpu$1, hostPath: /dev/null, type: c, permissions: rw}"; }
  {
    echo 'cdiVersion: "0.5.0"'
    echo 'kind: nvidia.com/gpu'
    echo 'devices:'
    every=
    for gpu in $(seq 0 $((gpus - 1))); do
      : > "/opt/lab/gpus/$gpu"
      : > "/dev/fakegpu$gpu"
      echo "  - {name: \"$gpu\", containerEdits: {deviceNodes: [$(node "$gpu")]}}"
      every="$every${every:+, }$(node "$gpu")"
    done
    echo "  - {name: all, containerEdits: {deviceNodes: [$every]}}"
    echo 'containerEdits:'
    echo '  mounts: [{hostPath: /opt/lab/nvidia-smi, containerPath: /usr/bin/nvidia-smi, options: [ro, rbind]}]'
  } > "$cdi/nvidia.yaml"
else
  echo '{}' > /etc/docker/daemon.json
fi

# sshd: keys only
mkdir -p /run/sshd
home=$(getent passwd "$user" | cut -d: -f6)
install -d -m 700 -o "$user" -g "$user" "$home/.ssh"
if [ -f /lab/authorized_keys ]; then
  install -m 600 -o "$user" -g "$user" /lab/authorized_keys "$home/.ssh/authorized_keys"
fi
[ -f /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
cp /etc/ssh/ssh_host_ed25519_key.pub /lab/host_key.pub
/usr/sbin/sshd

if [ "$user" = root ]; then
  exec "$@" -H unix:///var/run/docker.sock -H unix:///lab/docker.sock --group "${LAB_SOCKET_GID:-0}"
fi

# rootless: the same engine, as an ordinary user in namespaces of its own
[ -c /dev/net/tun ] || { mkdir -p /dev/net && mknod /dev/net/tun c 10 200; }
[ -c /dev/fuse ] || mknod /dev/fuse c 10 229
chmod 666 /dev/net/tun /dev/fuse
install -d -m 700 -o "$user" -g "$user" /run/user/1000
chown "$user:$user" "$home/.local/share/docker"
install -D -m 644 -o "$user" -g "$user" /etc/docker/daemon.json "$home/.config/docker/daemon.json"
# the socket belongs to uid 1000, the caller outside may be another: the folder around it keeps others out
(
  for _ in $(seq 300); do
    if [ -S /lab/docker.sock ]; then chmod 666 /lab/docker.sock; break; fi
    sleep 0.1
  done
) &
exec setpriv --reuid "$user" --regid "$user" --init-groups --inh-caps=-all \
  env HOME="$home" USER="$user" XDG_RUNTIME_DIR=/run/user/1000 \
  PATH=/usr/share/docker.io/contrib:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  "$@" -H unix:///lab/docker.sock
