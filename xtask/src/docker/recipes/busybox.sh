#!/bin/sh
# One static program with many names, and a user of the image's own.
set -eu
mkdir -p root/bin root/etc root/srv/app root/tmp
chmod 1777 root/tmp
cp /bin/busybox root/bin/busybox
chroot root /bin/busybox --install -s /bin
printf 'root:x:0:0:root:/:/bin/sh\napp:x:1234:4321:app:/srv/app:/bin/sh\n' > root/etc/passwd
printf 'root:x:0:\napp:x:4321:\n' > root/etc/group
chown 1234:4321 root/srv/app
tar -C root -cf "$TAR" .
