console.log(Buffer.from('häß').toString('base64'), new Uint8Array([1, 2]), Buffer.alloc(2))
