Promise.reject(new RangeError('nobody took it'))
