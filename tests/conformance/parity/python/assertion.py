def check(n):
    assert n > 0, f'{n} is not positive'
check(1)
check(-1)
