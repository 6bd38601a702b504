printf 'b\na\nc\n' | sort | head -2
set -o pipefail
false | true; echo $? ${PIPESTATUS[@]}
echo to stderr 2>&1 >&2 | cat
diff <(echo a) <(echo a) && echo same
