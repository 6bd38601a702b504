#!/bin/sh
# A root whose C library is musl, as in Alpine: its loader, a program that needs it, and a static shell. No glibc, no list of users.
set -eu
mkdir -p root/bin root/lib root/tmp
chmod 1777 root/tmp
cp /bin/busybox root/bin/busybox
chroot root /bin/busybox --install -s /bin
cp -L "/lib/$(uname -m)-linux-musl/libc.so" "root/lib/ld-musl-$(uname -m).so.1"
musl-gcc -O1 -s -o root/bin/says "$RECIPES/says.c"
tar -C root -cf "$TAR" .
