# Makes a container as Docker does and becomes its first process. In new namespaces of all kinds; $1 is an empty folder, $2 the
# guest's program, $3 the folder of the channel, $4 what is special: /proc is masked as Docker does it (masked), or is not (bare), or
# /workspace is a link to what is not the commands' (linked), or the image has a volume where commands write (volume), on one of
# their folders (twice) or one that is covered (covered), or a link led the channel there (led), or the kernel has no Landlock (old).
set -e
mount -t tmpfs -o mode=755 tmpfs "$1"
cd "$1"
mkdir -p usr proc dev/shm dev/pts workspace home/user tmp etc .glovebox/channel
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
mount --rbind /usr usr
mount -t proc proc proc
for device in null zero urandom; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
for folder in tmp dev/shm; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
for folder in workspace home/user; do mount -t tmpfs -o mode=700 tmpfs $folder; done
touch .glovebox/guest
mount --bind "$2" .glovebox/guest
if [ "$4" = led ]; then
    rmdir .glovebox/channel
    ln -s ../tmp/channel .glovebox/channel
    mkdir tmp/channel
fi
mount --bind "$3" "$(realpath .glovebox/channel)"
case "$4" in
volume | covered) mkdir workspace/v && mount -t tmpfs tmpfs workspace/v ;;
twice) mount -t tmpfs tmpfs home/user ;;
esac
[ "$4" != covered ] || mount -o remount,ro workspace/v
if [ "$4" = linked ]; then
    umount workspace
    rmdir workspace
    ln -s .glovebox/channel workspace
fi
if [ "$4" = masked ]; then
    for file in kcore keys timer_list sysrq-trigger; do [ ! -e proc/$file ] || mount --bind /dev/null proc/$file; done
fi
mount -o remount,ro "$1"
without=
if [ "$4" = old ]; then
    # landlock_create_ruleset, whose number is the same everywhere, is a call that there is not.
    without='$f = pack("SCCL" x 4, 0x20,0,0,0, 0x15,0,1,444, 6,0,0,0x50026, 6,0,0,0x7fff0000); $p = pack("Sx6p", 4, $f);
        require "syscall.ph"; syscall(&SYS_prctl, 22, 2, $p) and die $!; exec @ARGV'
fi
exec chroot . ${without:+perl -e "$without"} setpriv --bounding-set=-all,+chown,+kill,+setgid,+setuid,+setpcap --inh-caps=-all /.glovebox/guest init
