#!/bin/sh
# Says hello from inside a sandbox: glovebox run examples/hello.sh Ada
echo "hello, ${1:-world}! I am uid $(id -u) in $(pwd)"
