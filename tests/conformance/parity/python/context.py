import contextlib, io
@contextlib.contextmanager
def mark(name):
    print('enter', name)
    try:
        yield name
    finally:
        print('leave', name)
with mark('a') as a, mark('b'):
    print(a)
buffer = io.StringIO()
with contextlib.redirect_stdout(buffer):
    print('caught')
print(repr(buffer.getvalue()))
with mark('c'):
    raise ValueError('inside')
