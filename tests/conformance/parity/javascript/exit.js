console.log('before')
process.exit(7)
console.log('after')
