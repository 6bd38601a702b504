class Own extends Error {
  constructor(message) {
    super(message)
    this.name = 'Own'
    this.extra = 5
  }
}
throw new Own('custom')
