async function main() {
  await new Promise((done) => setTimeout(done, 5))
  console.log('in main')
  return 5
}
main()
