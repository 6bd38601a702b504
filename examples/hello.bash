# glovebox run examples/hello.bash Ada
who=("${1:-world}")
echo "hello, ${who[0]}! I am uid $UID in $PWD"
