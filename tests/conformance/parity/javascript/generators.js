function* g() { const x = yield 1; console.log('got', x); yield* [2, 3] }
const it = g()
console.log(it.next(), it.next('v'), [...it])
async function* ag() { yield 1; yield 2 }
;(async () => { for await (const v of ag()) console.log(v) })()
