//! The verb `vm`: the conformance suite on another kernel, with control groups of version 2 only.
//!
//! Most hosts have version 2 alone, and a kernel older than the one this is written on. So Debian's own kernel is booted
//! under software emulation, from a small Debian root that holds the suite, and the suite runs there unchanged. With an engine it is a
//! Debian with systemd, as most hosts of Docker and of Podman are: both leave the groups of their containers to it.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    docker::images,
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

/// What is there beside them on a host of an engine.
const ENGINES: &str = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,docker.io,podman,uidmap,crun,runc,apparmor,ca-certificates";

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
exec /bin/busybox switch_root /root NEXT
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

/// The service of a host of an engine, started by systemd: makes the image, runs the suite, says how it ended, and switches off.
const SERVICE: &str = r#"[Unit]
After=multi-user.target docker.service
[Service]
Type=oneshot
ExecStart=/sbin/vm-suite
StandardOutput=tty
StandardError=inherit
TTYPath=/dev/ttyS0
"#;

/// What every host of an engine does.
const SUITE: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
echo "kernel $(uname -r), control groups of version 2: $(cat /sys/fs/cgroup/cgroup.controllers)"
suite="/opt/glovebox/conformance --backend docker --image IMAGE --longest 600 ONLY"
ENGINE
echo "vm: the suite ended with $code"
systemctl poweroff --force --force
"#;

/// Docker as Debian starts it. The kernel of the machine has no modules for its network.
const DOCKER: &str = r#"systemctl start docker && docker import TAR IMAGE > /dev/null
cd /opt/glovebox && eval "$suite"; code=$?"#;

/// Podman of an ordinary user who is logged in, as Debian starts it.
const PODMAN: &str = r#"useradd --create-home --shell /bin/sh tester && loginctl enable-linger tester
export XDG_RUNTIME_DIR=/run/user/$(id -u tester)
until [ -S $XDG_RUNTIME_DIR/bus ]; do systemctl start user@$(id -u tester); done
as="runuser -u tester -- env HOME=/home/tester DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock"
cd /home/tester && $as systemctl --user start podman.socket && $as podman import TAR IMAGE > /dev/null
eval "$as $suite"; code=$?"#;

/// Where the suite runs.
#[derive(Clone, Copy, PartialEq)]
enum Host {
    /// On a host with nothing but a kernel.
    Bare,
    /// On one with an engine, by what it does there.
    Engine(&'static str),
}

/// The verb `vm`.
pub(crate) fn vm(rest: &[String]) -> Result<()> {
    let (mut only, mut host) = (String::new(), Host::Bare);
    for words in rest.chunks(2) {
        match words {
            [flag, name] if flag == "--only" && !name.contains('\'') => only += &format!(" '{name}'"),
            [flag, name] if flag == "--engine" && name == "docker" => host = Host::Engine(DOCKER),
            [flag, name] if flag == "--engine" && name == "podman" => host = Host::Engine(PODMAN),
            _ => bail!("'{}' was not expected: --only CASES, --engine docker|podman", words.join(" ")),
        }
    }
    need::root()?;
    need::tools(&TOOLS)?;
    run(&["cargo", "build", "--release", "--locked", "--workspace", "--bins"])?;
    let folder = root().join("target/vm");
    fs::create_dir_all(&folder)?;
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let version = fetch_kernel(&folder)?;
    make_root(&folder, &version, host, &only)?;
    make_first_disk(&folder, &version, host)?;
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
        "console=ttyS0 quiet panic=-1 cgroup_no_v1=all systemd.show_status=false",
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
fn make_root(folder: &Path, version: &str, host: Host, only: &str) -> Result<()> {
    let (tar, packages, init) = match host {
        Host::Bare => ("root.tar", PACKAGES.to_owned(), SECOND_INIT.replace("ONLY", only)),
        Host::Engine(engine) => {
            let suite = SUITE.replace("ENGINE", engine).replace("ONLY", only);
            let suite = suite.replace("TAR", "/opt/glovebox/image.tar").replace("IMAGE", &images::reference("debian"));
            ("engines.tar", format!("{PACKAGES},{ENGINES}"), suite)
        }
    };
    if !folder.join(tar).exists() {
        let include = format!("--include={packages}");
        run(&["mmdebstrap", "--variant=minbase", &include, "bookworm", &folder.join(tar).to_string_lossy()])?;
    }
    fs::write(folder.join("vm-init"), init)?;
    let binaries = ["conformance", "glovebox-probe", "glovebox"].map(|name| built("release", name));
    let binaries = binaries.map(|path| path.to_string_lossy().into_owned()).join(" ");
    let of_engine = match host {
        Host::Bare => String::new(),
        Host::Engine(_) => {
            fs::write(folder.join("suite.service"), SERVICE)?;
            format!(
                "mv root/sbin/vm-init root/sbin/vm-suite && cp {} root/opt/glovebox/image.tar
                 mkdir -p root/etc/docker && echo '{{\"bridge\": \"none\", \"iptables\": false}}' > root/etc/docker/daemon.json
                 mkdir -p root/etc/systemd/system/multi-user.target.wants && cp suite.service root/etc/systemd/system/
                 ln -s ../suite.service root/etc/systemd/system/multi-user.target.wants/
                 ln -s /dev/null root/etc/systemd/system/serial-getty@ttyS0.service
                 echo vmhost > root/etc/hostname && echo '127.0.0.1 localhost vmhost' > root/etc/hosts",
                images::tar("debian")?.display()
            )
        }
    };
    let script = format!(
        "cd {folder} && rm -rf root root.img && mkdir -p root/opt/glovebox && tar -C root --exclude='./dev/*' -xf {tar}
         mkdir -p root/lib/modules/{version}/kernel && cp kernel/lib/modules/{version}/modules.* root/lib/modules/{version}/
         cp -r kernel/lib/modules/{version}/kernel/fs kernel/lib/modules/{version}/kernel/net kernel/lib/modules/{version}/kernel/lib root/lib/modules/{version}/kernel/
         install -m 755 vm-init root/sbin/vm-init && cp {binaries} root/opt/glovebox/
         {of_engine}
         mke2fs -q -t ext4 -d root root.img 5000M",
        folder = folder.display(),
    );
    run(&["sh", "-ec", &script])
}

/// Makes the first file system of the machine, in memory.
fn make_first_disk(folder: &Path, version: &str, host: Host) -> Result<()> {
    let script = format!(
        "cd {folder} && rm -rf first && mkdir -p first/bin first/mod && cp $(command -v busybox) first/bin/busybox
         for m in {MODULES}; do f=$(find kernel/lib/modules/{version} -name $m.ko | head -n 1); [ -z \"$f\" ] || cp $f first/mod/; done
         install -m 755 first-init first/init && cd first && find . | cpio -o -H newc --quiet | gzip -1 > ../first.gz",
        folder = folder.display(),
    );
    let next = if host == Host::Bare { "/sbin/vm-init" } else { "/sbin/init" };
    fs::write(folder.join("first-init"), FIRST_INIT.replace("MODULES", MODULES).replace("NEXT", next))?;
    run(&["sh", "-ec", &script])
}
