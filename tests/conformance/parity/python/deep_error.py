def a(n):
    return b(n - 1)
def b(n):
    if n < 0:
        return [][n]
    return a(n)
a(5)
