process.stdout.write('no newline')
process.stdout.write('\n')
process.stderr.write('err\n')
console.log(process.stdout.isTTY, 'x'.repeat(100000).length)
