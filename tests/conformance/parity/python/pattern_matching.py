def kind(x):
    match x:
        case {'a': [first, *_]}:
            return first
        case int() | float():
            return 'number'
        case _:
            return None
print(kind({'a': [7, 8]}), kind(1.5), kind('s'))
