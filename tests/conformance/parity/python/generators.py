def count(n):
    try:
        while n:
            got = yield n
            n = got if got is not None else n - 1
    finally:
        print('closed')
g = count(3)
print(next(g), g.send(10), next(g))
g.close()
import itertools, functools
print(list(itertools.islice(itertools.count(), 3)), functools.reduce(lambda a, b: a * b, range(1, 6)))
