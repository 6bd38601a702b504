function main() { console.log('main ran') }
if (require.main === module) main()
