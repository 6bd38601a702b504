function f(x) {
  return x.y.z
}
f({})
