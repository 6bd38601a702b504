#!/bin/sh
# Runs as root on a bare system, in namespaces of its own: installs what was packed in every way that the system knows, uses
# it, removes it again. The packages are in /trial/packages, a static busybox is /trial/busybox. Arguments: the version.
set -eu
version=$1
packages=/trial/packages
name=glovebox-$version-x86_64-linux
program=/usr/local/bin/glovebox

wrong() {
    printf 'trial: %s\n' "$1" >&2
    exit 1
}

# Runs install.sh, which must fail, and must say this.
refused() {
    said=$1
    shift
    ! "$@" >/trial/out 2>&1 || wrong "this should have failed: $*"
    grep -q -e "$said" /trial/out || wrong "'$*' did not say '$said': $(cat /trial/out)"
}

works() {
    [ "$("$1" --version)" = "glovebox $version" ] || wrong "$1 has another version"
    said=$("$1" run -- /bin/sh -c 'printf "hi from "; id -u') || wrong "$1 cannot run a shell"
    [ "$said" = 'hi from 1000' ] || wrong "a shell in a sandbox said '$said'"
    "$1" runs list | grep -q -e 'hi from' || wrong "$1 did not record the run: $("$1" runs list)"
}

# Pages and completions are those of the program. Arguments: program, prefix, folder for zsh, ending of the pages, their reader.
complete_below() {
    "$1" completions bash | cmp - "$2/share/bash-completion/completions/glovebox"
    "$1" completions fish | cmp - "$2/share/fish/vendor_completions.d/glovebox.fish"
    "$1" completions zsh | cmp - "$2/share/zsh/$3/_glovebox"
    "$1" man /trial/man >/dev/null
    for page in /trial/man/*; do
        "$5" "$2/share/man/man1/${page##*/}$4" | cmp - "$page"
    done
    if command -v bash >/dev/null; then
        bash -c '. "$1" && complete -p glovebox' bash "$2/share/bash-completion/completions/glovebox" >/dev/null
    fi
    for file in README.md THIRD-PARTY; do
        [ -s "$2/share/doc/glovebox/$file" ] || wrong "there is no $file"
    done
}

nothing_below() {
    left=$(find "$1" ! -type d -name '*glovebox*')
    [ -z "$left" ] || wrong "this is left: $left"
}

damaged_archives_are_refused() {
    cp -r $packages /trial/damaged
    printf x >>"/trial/damaged/$name.tar.gz"
    refused 'is not what SHA256SUMS says it is' sh /trial/damaged/install.sh
    nothing_below /usr/local
}

# The sums are right, and yet the program does not run: what was installed stays.
broken_programs_replace_nothing() {
    mkdir /trial/broken
    tar -xzf "$packages/$name.tar.gz" -C /trial/broken
    printf '#!/bin/sh\nexit 1\n' >"/trial/broken/$name/bin/glovebox"
    (cd /trial/broken && tar -cf - "$name" | gzip >"$name.tar.gz" && sha256sum "$name.tar.gz" >SHA256SUMS)
    refused 'does not run here' sh $packages/install.sh --from /trial/broken
    works $program
    [ "$(ls -A /usr/local/bin)" = glovebox ] || wrong "an unfinished file is left: $(ls -A /usr/local/bin)"
}

# A run that is under way goes on while its program is replaced.
replaced_while_it_runs() {
    mkfifo /trial/in /trial/said
    $program run -- /bin/sh -c 'echo started; cat' </trial/in >/trial/said &
    run=$!
    exec 3>/trial/in 4</trial/said
    read -r line <&4
    [ "$line" = started ] || wrong "the run said '$line'"
    touch /usr/local/share/man/man1/glovebox-gone.1
    sh $packages/install.sh --version "$version" >/dev/null
    [ ! -e /usr/local/share/man/man1/glovebox-gone.1 ] || wrong 'the page of a verb that is gone is still there'
    echo finished >&3
    exec 3>&-
    read -r line <&4
    [ "$line" = finished ] || wrong "the run said '$line' after its program was replaced"
    wait $run
    exec 4<&-
}

by_script() {
    refused 'not installed below' sh $packages/install.sh --uninstall
    refused 'does not name version 9' sh $packages/install.sh --version 9
    refused 'needed: there is no SHA256SUMS' sh -s <$packages/install.sh
    refused 'is a folder' sh -c "mkdir -p /trial/taken/bin/glovebox && sh $packages/install.sh --prefix /trial/taken"
    sh $packages/install.sh
    works $program
    complete_below $program /usr/local site-functions '' cat
    replaced_while_it_runs
    broken_programs_replace_nothing
    sh $packages/install.sh --uninstall
    nothing_below /usr/local
}

by_ordinary_user() {
    mkdir -p /trial/home
    chown nobody /trial/home
    as_user() { su -s /bin/sh nobody -c "HOME=/trial/home sh $packages/install.sh $1"; }
    as_user '' | grep -q 'is not in PATH' || wrong 'nothing was said about PATH'
    said=$(su -s /bin/sh nobody -c 'HOME=/trial/home /trial/home/.local/bin/glovebox run -- /bin/echo hi') ||
        wrong 'an ordinary user cannot run anything'
    [ "$said" = hi ] || wrong "a program of an ordinary user said '$said'"
    as_user --uninstall
    nothing_below /trial/home
    refused 'choose another place' as_user '--prefix /usr/local'
}

by_address() {
    # It goes to the background when it listens, and ends with the namespace.
    /trial/busybox httpd -p 127.0.0.1:8000 -h $packages
    sh $packages/install.sh --from http://127.0.0.1:8000/ --prefix /trial/fetched
    works /trial/fetched/bin/glovebox
    refused 'cannot get SHA256SUMS' sh $packages/install.sh --from http://127.0.0.1:8000/nothing --prefix /trial/fetched
    refused 'is not encrypted' sh $packages/install.sh --from http://example.com
    refused 'neither a folder nor an https address' sh $packages/install.sh --from ftp://example.com
    sh $packages/install.sh --uninstall --prefix /trial/fetched
    nothing_below /trial/fetched
}

by_dpkg() {
    dpkg --install $packages/glovebox_*_amd64.deb
    [ -z "$(dpkg --verify glovebox)" ] || wrong 'dpkg sees other files than were packed'
    works /usr/bin/glovebox
    complete_below /usr/bin/glovebox /usr vendor-completions .gz zcat
    dpkg --purge glovebox
    nothing_below /usr
}

damaged_archives_are_refused
by_script
by_ordinary_user
by_address
ways='script, script as an ordinary user, address'
# busybox has a dpkg too, without the folders of one.
if [ -d /var/lib/dpkg ]; then
    by_dpkg
    ways="$ways, dpkg"
fi
# A user without a runtime folder has the locks of sandboxes in /tmp/glovebox-UID, as root has them in /run/glovebox.
left=$(find /tmp -mindepth 1 -maxdepth 1 ! -name 'glovebox-*')
[ -z "$left" ] || wrong "this is left in /tmp: $left"
echo "trial: installed by $ways; used; removed"
