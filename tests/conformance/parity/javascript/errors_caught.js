try { null.x } catch ({ name, message }) { console.log(name, message) }
try { undefinedName } catch (e) { console.log(e instanceof ReferenceError) }
try { JSON.parse('{') } catch (e) { console.log(e.name) }
Promise.reject(new Error('r')).catch((e) => console.log('caught', e.message))
