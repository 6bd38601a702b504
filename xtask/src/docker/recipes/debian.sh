#!/bin/sh
# A small Debian with the languages of the suite. SUITE and SOURCES say where its packages come from.
set -eu
mmdebstrap --quiet --variant=minbase --mode=root \
    --include=bash,nodejs,procps,python3,sqlite3 \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --aptopt='APT::Install-Recommends "false"' \
    "$SUITE" "$TAR" - < "$SOURCES"
