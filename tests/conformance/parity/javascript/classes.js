class A { #p = 1; static s = 2; get p() { return this.#p } toString() { return 'A!' } }
class B extends A { constructor() { super(); this.q = 3 } }
const b = new B()
console.log(b, `${b}`, b.p, A.s, b instanceof A, Object.getPrototypeOf(b) === B.prototype)
