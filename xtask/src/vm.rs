//! The verb `vm`: the conformance suite on another kernel, with control groups of version 2 only.
//!
//! Most hosts have version 2 alone, and a kernel older than the one this is written on. So Debian's own kernel is booted
//! under software emulation, from a small Debian root that holds the suite, and the suite runs there unchanged.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    need::{self, Tool},
    suites::{read, run, run_and_read},
    tree::{built, root},
};

const TOOLS: [Tool; 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mmdebstrap", "mmdebstrap"),
    ("mke2fs", "e2fsprogs"),
    ("cpio", "cpio"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
];

/// What is in the root beside a minimal Debian: what the suite's cases run.
const PACKAGES: &str = "python3,nodejs,procps,iproute2,kmod,attr,strace";

/// Modules that the first file system needs, in the order in which they are loaded.
const MODULES: &str = "crc16 crc32c_generic libcrc32c mbcache jbd2 ext4 virtio virtio_ring virtio_pci_modern_dev \
                       virtio_pci_legacy_dev virtio_pci virtio_blk";

/// The first process of the machine: finds the disk and goes on there.
const FIRST_INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /dev /proc /root
/bin/busybox mount -t devtmpfs dev /dev
for m in MODULES; do [ -f /mod/$m.ko ] && /bin/busybox insmod /mod/$m.ko 2>/dev/null; done
until [ -b /dev/vda ]; do /bin/busybox usleep 50000; done
/bin/busybox mount -t ext4 /dev/vda /root
exec /bin/busybox switch_root /root /sbin/vm-init
"#;

/// The init of the disk: mounts what a host has, runs the suite, says how it ended, and switches off.
const SECOND_INIT: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run; mount -t cgroup2 cgroup2 /sys/fs/cgroup
modprobe overlay; modprobe unix 2>/dev/null; ip link set lo up; hostname vmhost
ln -s /proc/self/fd /dev/fd; echo '127.0.0.1 localhost' > /etc/hosts
echo "kernel $(uname -r), control groups of version 2: $(cat /sys/fs/cgroup/cgroup.controllers)"
cd /opt/glovebox && ./conformance --backend native --longest 300 ONLY; code=$?
echo "vm: the suite ended with $code"
sync; echo o > /proc/sysrq-trigger; sleep 60
"#;

/// The verb `vm`.
pub(crate) fn vm(rest: &[String]) -> Result<()> {
    let only = match rest {
        [] => "",
        [flag, name] if flag == "--only" => name,
        _ => bail!("'{}' was not expected", rest.join(" ")),
    };
    ensure!(!only.contains('\''), "no case has a quotation mark in its name");
    need::root()?;
    need::tools(&TOOLS)?;
    run(&["cargo", "build", "--release", "--locked", "--workspace", "--bins"])?;
    let folder = root().join("target/vm");
    fs::create_dir_all(&folder)?;
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let version = fetch_kernel(&folder)?;
    make_root(&folder, &version, only)?;
    make_first_disk(&folder, &version)?;
    let kernel = at(&format!("kernel/boot/vmlinuz-{version}"));
    let drive = format!("file={},format=raw,if=virtio", at("root.img"));
    let (_, said) = run_and_read(&[
        "qemu-system-x86_64",
        "-m",
        "4096",
        "-smp",
        "2",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-no-reboot",
        "-kernel",
        &kernel,
        "-initrd",
        &at("first.gz"),
        "-drive",
        &drive,
        "-append",
        "console=ttyS0 quiet panic=-1 cgroup_no_v1=all",
    ])?;
    ensure!(said.contains("vm: the suite ended with 0"), "the suite did not pass in the machine");
    Ok(())
}

/// Brings Debian's kernel as a package and unpacks it. Says its version.
fn fetch_kernel(folder: &Path) -> Result<String> {
    let kernel = folder.join("kernel");
    if !kernel.exists() {
        run(&["apt-get", "update", "-q"])?;
        let depends = read(&["apt-cache", "depends", "linux-image-amd64"])?;
        let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        let package = package.context("apt does not know linux-image-amd64")?;
        let script = format!(
            "cd {} && rm -f *.deb && apt-get download {package} && dpkg-deb -x {package}_*.deb kernel && depmod -b kernel {}",
            folder.display(),
            package.trim_start_matches("linux-image-"),
        );
        run(&["sh", "-ec", &script])?;
    }
    let image = fs::read_dir(kernel.join("boot"))?
        .flatten()
        .find_map(|entry| entry.file_name().into_string().ok()?.strip_prefix("vmlinuz-").map(str::to_owned));
    image.context("the kernel's package has no kernel")
}

/// Makes the disk: a small Debian with the kernel's modules and the suite, which runs the cases that `only` names, or all.
fn make_root(folder: &Path, version: &str, only: &str) -> Result<()> {
    let tar = folder.join("root.tar");
    if !tar.exists() {
        let include = format!("--include={PACKAGES}");
        run(&["mmdebstrap", "--variant=minbase", &include, "bookworm", &tar.to_string_lossy()])?;
    }
    let filter = if only.is_empty() { String::new() } else { format!("'{only}'") };
    fs::write(folder.join("vm-init"), SECOND_INIT.replace("ONLY", &filter))?;
    let binaries = ["conformance", "glovebox-probe", "glovebox"].map(|name| built("release", name));
    let binaries = binaries.map(|path| path.to_string_lossy().into_owned()).join(" ");
    let script = format!(
        "cd {folder} && rm -rf root root.img && mkdir -p root/opt/glovebox && tar -C root --exclude='./dev/*' -xf root.tar
         mkdir -p root/lib/modules/{version}/kernel && cp kernel/lib/modules/{version}/modules.* root/lib/modules/{version}/
         cp -r kernel/lib/modules/{version}/kernel/fs kernel/lib/modules/{version}/kernel/net kernel/lib/modules/{version}/kernel/lib root/lib/modules/{version}/kernel/
         install -m 755 vm-init root/sbin/vm-init && cp {binaries} root/opt/glovebox/
         mke2fs -q -t ext4 -d root root.img 2500M",
        folder = folder.display(),
    );
    run(&["sh", "-ec", &script])
}

/// Makes the first file system of the machine, in memory.
fn make_first_disk(folder: &Path, version: &str) -> Result<()> {
    let script = format!(
        "cd {folder} && rm -rf first && mkdir -p first/bin first/mod && cp $(command -v busybox) first/bin/busybox
         for m in {MODULES}; do f=$(find kernel/lib/modules/{version} -name $m.ko | head -n 1); [ -z \"$f\" ] || cp $f first/mod/; done
         install -m 755 first-init first/init && cd first && find . | cpio -o -H newc --quiet | gzip -1 > ../first.gz",
        folder = folder.display(),
    );
    fs::write(folder.join("first-init"), FIRST_INIT.replace("MODULES", MODULES))?;
    run(&["sh", "-ec", &script])
}
