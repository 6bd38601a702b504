const { a, b: { c = 5, ...rest } = {}, ...others } = { a: 1, b: { d: 2, e: 3 }, f: 4 }
const [x, , y = 7, ...z] = [1, 2, undefined, 4, 5]
console.log(a, c, rest, others, x, y, z)
label: for (const i of [1, 2]) { for (const j of [1, 2]) { if (j === 2) continue label; console.log(i, j) } }
