#!/bin/sh
# Makes a folder the root and runs the trial there, in mount, network and process namespaces that are its own already.
# Arguments: the folder, the version.
set -eu
mount --bind "$1" "$1"
cd "$1"
mkdir -p proc sys dev old
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
busybox ip link set lo up
pivot_root . old
/trial/busybox umount -l /old
/trial/busybox rmdir /old
exec /trial/busybox env -i PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root TERM=dumb \
    /bin/sh /trial/trial.sh "$2"
