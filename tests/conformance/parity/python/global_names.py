x = 1
def change():
    global x
    x += 1
    globals()['y'] = 5
change()
print(x, y, __name__, 'x' in dir(), change.__module__)
if __name__ == '__main__':
    print('main')
