console.log(1)
Promise.resolve().then(() => console.log(3))
process.nextTick(() => console.log('tick'))
queueMicrotask(() => console.log(4))
console.log(2)
// differs: stdout: code runs as that of a module does, so what waits for a promise comes before the next tick
