import multiprocessing
def square(n):
    return n * n
if __name__ == '__main__':
    with multiprocessing.get_context('fork').Pool(2) as pool:
        print(pool.map(square, range(6)))
