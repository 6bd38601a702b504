const rows = [{ n: 'b', v: 2 }, { n: 'a', v: 2 }, { n: 'c', v: 1 }]
console.log(rows.sort((p, q) => p.v - q.v).map((r) => r.n).join(), [10, 9, 1].sort(), Object.entries({ b: 1, a: 2 }), new Map(Object.entries({ x: 1 })))
