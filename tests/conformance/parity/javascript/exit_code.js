process.exitCode = 3
console.log('set')
