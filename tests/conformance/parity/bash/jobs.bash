sleep 0.05 &
pid=$!
wait $pid; echo waited $?
(exit 4) & wait $!; echo $?
