// differs: stderr: node says where it was thrown, a session what
throw 'text'
