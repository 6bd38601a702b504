import sys, traceback
def f():
    raise OSError(2, 'gone', 'name')
try:
    f()
except OSError as e:
    traceback.print_exc()
    print(e.errno, e.filename, traceback.extract_tb(sys.exc_info()[2])[-1].line)
