const add = (a) => (b) => a + b
let n = 0
const next = () => ++n
next(); next()
console.log(add(1)(2), n, [1, 2, 3].map(add(10)), (() => { try { return 'try' } finally { n = 9 } })(), n)
