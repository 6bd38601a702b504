#!/bin/sh
# One static program and nothing else: no shell, no /tmp, no list of users.
set -eu
mkdir root
musl-gcc -O1 -s -static -o root/says "$RECIPES/says.c"
tar -C root -cf "$TAR" says
