x=5; ((x += 2)); echo $x $((x * 3)) $((16#ff)) $((x > 3 ? 1 : 0))
let y=x**2; echo $y
