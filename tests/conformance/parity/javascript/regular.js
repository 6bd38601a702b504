const m = /(?<y>\d{4})-(?<m>\d\d)/u.exec('on 2024-05')
console.log(m.groups.y, 'aXbX'.replaceAll('X', '-'), [...'a1b2'.matchAll(/\d/g)].map(String), 'ä😀'.length, [...'ä😀'].length)
