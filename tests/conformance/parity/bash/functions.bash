f() { local v=$1; echo "in $v $#"; return 3; }
f a b; echo $?
g() { f "$@" x; }
g 'one two'
