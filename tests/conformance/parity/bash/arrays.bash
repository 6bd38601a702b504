a=(one 'two words' three); a+=(four)
for item in "${a[@]}"; do echo "<$item>"; done
declare -A m=([k]=v [j]=w); echo ${#a[@]} ${a[-1]} ${m[k]} ${!a[@]}
