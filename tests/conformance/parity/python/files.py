import json, os, pathlib, tempfile
pathlib.Path('a.json').write_text(json.dumps({'k': [1, None, 'ä']}))
print(json.load(open('a.json')), os.path.getsize('a.json'), sorted(os.listdir('.')))
with tempfile.TemporaryDirectory() as folder:
    print(os.path.isdir(folder))
print(os.path.exists(folder))
