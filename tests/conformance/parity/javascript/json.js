console.log(JSON.stringify({ a: [1, 'x', null, undefined, () => 1], d: new Map() }, null, 2), JSON.parse('[1,{"a":2}]'), structuredClone({ a: [1] }))
