import sys
if sys.version_info < (3, 11):
    raise SystemExit('too old')
try:
    raise ExceptionGroup('several', [ValueError('a'), TypeError('b')])
except* ValueError as group:
    print(group.exceptions)
