squares = [n * n for n in range(5)]
print(squares, {n: -n for n in squares}, {n % 3 for n in squares}, sum(n for n in squares))
x = 5
print([x for x in range(3)], x, [[i * j for j in range(3)] for i in range(3)])
def gen():
    yield from range(3)
print(list(gen()))
