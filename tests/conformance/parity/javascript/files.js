const fs = require('fs'), path = require('path'), os = require('os')
fs.writeFileSync('a.txt', 'text')
console.log(fs.readFileSync('a.txt', 'utf8'), fs.existsSync('b.txt'), fs.readdirSync('.'), path.extname('x/y.tar.gz'), os.EOL === '\n')
try { fs.readFileSync('absent') } catch (e) { console.log(e.code) }
