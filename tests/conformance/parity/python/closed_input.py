import sys
print(repr(sys.stdin.read()), sys.stdin.isatty(), sys.stdout.isatty())
input('name? ')
