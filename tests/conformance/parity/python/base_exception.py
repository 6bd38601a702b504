class Stop(BaseException):
    pass
def f():
    raise Stop('now')
f()
