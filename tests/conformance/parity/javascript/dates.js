const d = new Date(Date.UTC(2024, 1, 29, 12))
console.log(d.toISOString(), JSON.stringify({ d }), d.getTime(), new Intl.NumberFormat('en').format(1234567.891))
