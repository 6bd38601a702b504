# A build of hundreds of short processes, pipes, traps, jobs and substitutions.
seq 400 | xargs -P 16 -n 1 sh -c 'echo $(( $0 * $0 )) > part$0'
cat part* | sort -n | tail -n 1
for n in $(seq 100); do (exit $((n % 3))) || echo x; done | wc -l
bash -c 'for n in {1..50}; do sleep 0.01 & done; wait; echo all came back; diff <(seq 3) <(seq 3) && echo alike'
trap 'echo left by a trap' EXIT
bash -c 'coproc cat; echo through a coprocess >&${COPROC[1]}; read -r line <&${COPROC[0]}; echo $line'
timeout 0.2 sleep 10 || echo "ended with $?"
