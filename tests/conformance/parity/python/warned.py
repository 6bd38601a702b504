import warnings
def old():
    warnings.warn('old', DeprecationWarning, stacklevel=2)
old()
warnings.warn('noted')
print('done')
