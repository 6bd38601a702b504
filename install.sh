#!/bin/sh
# Installs glovebox from a folder or an address that holds what `cargo xtask dist` wrote: the archive and its checksums.
# Nothing is put in place before the archive's checksum was found right and the program in it was seen to run here.
# Each file is replaced by a rename, so a run that is under way keeps its program and there is never half of a file.
set -eu
umask 022
# A name without a slash could be found in CDPATH, and cd would then speak.
unset CDPATH

# No file of a release is near this size. It bounds what an address can make this machine store, in blocks of 512 bytes.
LARGEST_FILE=400000

usage() {
    cat <<'USAGE'
usage: install.sh [--from DIR|URL] [--version VERSION] [--prefix DIR]
       install.sh --uninstall [--prefix DIR]

  --from DIR|URL     where glovebox-VERSION-x86_64-linux.tar.gz and SHA256SUMS are; the folder of this script unless given.
                     There is no published download address yet.
  --version VERSION  which version; needed only when there are several
  --prefix DIR       where it goes: DIR/bin, DIR/share; /usr/local for root and ~/.local for others unless given
  --uninstall        removes what this script put there, and nothing else
USAGE
}

say() { printf 'install.sh: %s\n' "$1"; }

fail() {
    printf 'install.sh: error: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf 'install.sh: hint: %s\n' "$2" >&2
    exit 1
}

misused() {
    printf 'install.sh: error: %s\n\n' "$1" >&2
    usage >&2
    exit 2
}

read_flags() {
    from='' version='' prefix='' uninstall=''
    while [ $# -gt 0 ]; do
        case $1 in
        --from | --version | --prefix)
            [ -n "${2:-}" ] || misused "$1 needs a value"
            case $1 in
            --from) from=$2 ;;
            --version) version=${2#v} ;;
            --prefix) prefix=$2 ;;
            esac
            shift 2
            ;;
        --uninstall)
            uninstall=yes
            shift
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) misused "'$1' was not expected" ;;
        esac
    done
    case $version in
    *[!0-9A-Za-z.+-]*) misused "'$version' is not a version such as 0.1.0" ;;
    esac
}

# The prefix as an absolute path: what is said at the end must hold in any folder.
choose_prefix() {
    if [ -z "$prefix" ]; then
        if [ "$(id -u)" = 0 ]; then
            prefix=/usr/local
        else
            [ -n "${HOME:-}" ] || fail 'HOME is not set' 'name the folder: --prefix DIR'
            prefix=$HOME/.local
        fi
    fi
    case $prefix in
    /*) ;;
    *) prefix=$(pwd)/$prefix ;;
    esac
    prefix=${prefix%/}
}

# The folder of this script, when the checksums lie beside it. A script that comes through a pipe has no folder.
choose_source() {
    if [ -z "$from" ]; then
        here=$(dirname -- "$0")
        if ! [ -f "$0" ] || ! [ -f "$here/SHA256SUMS" ]; then
            misused '--from is needed: there is no SHA256SUMS beside this script, and no published download address yet'
        fi
        from=$here
    fi
}

check_machine() {
    [ "$(uname -s)" = Linux ] || fail "glovebox runs on Linux, and this is $(uname -s)"
    [ "$(uname -m)" = x86_64 ] || fail "the program is for x86_64, and this machine is $(uname -m)" \
        'build it here: cargo install --path crates/glovebox-cli'
    for tool in tar gzip sha256sum mktemp; do
        command -v "$tool" >/dev/null || fail "$tool is missing"
    done
}

# Brings one file of the source into the scratch folder.
bring() {
    case $from in
    https://* | http://127.0.0.1[:/]* | http://localhost[:/]*) (ulimit -f "$LARGEST_FILE" && fetch "${from%/}/$1" "$scratch/$1") ;;
    http://*) fail "$from is not encrypted: what comes from there can be anybody's" 'use https, or --from DIR' ;;
    *://*) fail "$from is neither a folder nor an https address" ;;
    *) cp -- "$from/$1" "$scratch/$1" ;;
    esac || fail "cannot get $1 from $from"
}

# Nothing here follows a redirection to something unencrypted. GNU wget cannot be told that, so it follows none.
fetch() {
    if command -v curl >/dev/null; then
        protocols='=https'
        case $1 in http://*) protocols='=http' ;; esac
        curl --fail --silent --show-error --location --proto "$protocols" --connect-timeout 30 \
            --speed-limit 1000 --speed-time 60 --output "$2" -- "$1"
    elif ! command -v wget >/dev/null; then
        fail 'neither curl nor wget is there to fetch with' 'bring the files here, and use --from DIR'
    elif wget --version 2>/dev/null | grep -q GNU; then
        wget --no-verbose --max-redirect=0 --timeout=60 --tries=3 --output-document="$2" -- "$1"
    else
        case $1 in
        https://*) fail 'the wget of this machine does not check who it speaks to' 'install curl, or bring the files here and use --from DIR' ;;
        esac
        # No -T: the busybox of Debian 12 crashes on it. It gives up by itself after 15 minutes.
        wget -q -O "$2" "$1"
    fi
}

# Sets `version` when it was not given, and `name`, the archive without its ending.
choose_version() {
    archives=$(sed -n 's/^[0-9a-f]\{64\}  glovebox-\([0-9A-Za-z.+-]*\)-x86_64-linux\.tar\.gz$/\1/p' "$scratch/SHA256SUMS")
    if [ -z "$version" ]; then
        [ -n "$archives" ] || fail "$from/SHA256SUMS names no archive of glovebox for x86_64"
        [ "$(printf '%s\n' "$archives" | wc -l)" -eq 1 ] ||
            fail "$from has several versions: $(printf '%s' "$archives" | tr '\n' ' ')" 'choose one: --version VERSION'
        version=$archives
    fi
    printf '%s\n' "$archives" | grep -qxF -- "$version" || fail "$from/SHA256SUMS does not name version $version"
    name=glovebox-$version-x86_64-linux
}

check_sum() {
    expected=$(sed -n "s/^\([0-9a-f]\{64\}\)  $(printf '%s' "$name.tar.gz" | sed 's/[.+]/[&]/g')\$/\1/p" "$scratch/SHA256SUMS")
    found=$(sha256sum <"$scratch/$name.tar.gz")
    [ "$expected" = "${found%% *}" ] ||
        fail "$name.tar.gz is not what SHA256SUMS says it is (checksum ${found%% *}); nothing was changed" \
            'it was damaged or replaced: get it again, from a place that you trust'
}

# What this script puts below a prefix, beside the man pages of the verbs.
FILES='bin/glovebox
share/man/man1/glovebox.1
share/bash-completion/completions/glovebox
share/fish/vendor_completions.d/glovebox.fish
share/zsh/site-functions/_glovebox
share/doc/glovebox/LICENSE
share/doc/glovebox/README.md
share/doc/glovebox/THIRD-PARTY'

# Puts a file of the archive in place. The copy beside it has the same file system, so the rename is one step.
place() {
    target=$prefix/$1
    [ ! -d "$target" ] || fail "$target is a folder" 'choose another place: --prefix DIR'
    mkdir -p -- "$(dirname -- "$target")" || fail "cannot make the folder of $target" 'choose another place: --prefix DIR'
    unfinished=$(dirname -- "$target")/.$(basename -- "$target").new.$$
    cp -- "$unpacked/$1" "$unfinished" || fail "cannot write below $prefix" 'choose another place: --prefix DIR'
    case $1 in
    bin/*)
        chmod 755 "$unfinished"
        "$unfinished" --version >/dev/null || fail "the program does not run here; nothing was replaced by it"
        ;;
    *) chmod 644 "$unfinished" ;;
    esac
    mv -f -- "$unfinished" "$target"
    unfinished=''
}

# Pages of verbs that another version had.
remove_old_pages() {
    for page in "$prefix"/share/man/man1/glovebox-*.1; do
        [ -e "$unpacked/share/man/man1/${page##*/}" ] || rm -f -- "$page"
    done
}

install_files() {
    tar -xzf "$scratch/$name.tar.gz" -C "$scratch"
    unpacked=$scratch/$name
    for file in $FILES; do
        [ -f "$unpacked/$file" ] || fail "$name.tar.gz has no $file; nothing was changed"
    done
    # The program is first: when it does not run here, nothing else was touched.
    for file in $FILES; do place "$file"; done
    for page in "$unpacked"/share/man/man1/glovebox-*.1; do place "share/man/man1/${page##*/}"; done
    remove_old_pages
}

uninstall_files() {
    [ -e "$prefix/bin/glovebox" ] || [ -e "$prefix/share/doc/glovebox" ] ||
        fail "glovebox is not installed below $prefix" 'name the folder: --prefix DIR'
    for file in $FILES; do rm -f -- "$prefix/$file"; done
    rm -f -- "$prefix"/share/man/man1/glovebox-*.1
    rmdir -- "$prefix/share/doc/glovebox" 2>/dev/null || true
    say "removed glovebox from $prefix; your configuration and what glovebox recorded are untouched"
}

say_what_was_done() {
    say "installed $("$prefix/bin/glovebox" --version) as $prefix/bin/glovebox"
    say "man pages, completions and licences are below $prefix/share"
    say "to remove all of it: install.sh --uninstall --prefix $prefix"
    case :${PATH:-}: in
    *:"$prefix/bin":*) ;;
    *) say "$prefix/bin is not in PATH; add it: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
}

clean_up() {
    [ -z "$unfinished" ] || rm -f -- "$unfinished"
    [ -z "$scratch" ] || rm -rf -- "$scratch"
}

# All in one function, called by the last line: a script that was cut off on its way does nothing.
main() {
    read_flags "$@"
    choose_prefix
    if [ -n "$uninstall" ]; then
        uninstall_files
        return
    fi
    choose_source
    check_machine
    scratch='' unfinished=''
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    scratch=$(mktemp -d)
    bring SHA256SUMS
    choose_version
    bring "$name.tar.gz"
    check_sum
    install_files
    say_what_was_done
}

main "$@"
