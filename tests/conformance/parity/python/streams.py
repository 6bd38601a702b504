import sys
sys.stdout.write('no newline')
sys.stdout.flush()
sys.stderr.write('to stderr\n')
print()
print('a', 'b', sep='-', end='!\n', file=sys.stderr)
sys.stdout.buffer.write(b'bytes\n')
print('ä \u20ac \U0001f600')
