for i in 1 2 3; do [ $i = 2 ] && continue; echo $i; done
while read -r a b; do echo "$b $a"; done <<< $'x y\nz w'
until ((n++ >= 2)); do echo n$n; done
for ((i = 0; i < 2; i++)); do echo c$i; done
