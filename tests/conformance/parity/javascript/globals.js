var v = 1; globalThis.w = 2
function f() { return typeof this }
console.log(typeof require, typeof module, v + w, f(), typeof process, typeof fetch, require.main === module)
