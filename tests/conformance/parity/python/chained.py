def inner():
    return {}['missing']
try:
    inner()
except KeyError as error:
    raise RuntimeError('outer') from error
