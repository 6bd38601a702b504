# pip install of a local wheel, beside the program.
cat > make_wheel.py <<'END'
import zipfile
with zipfile.ZipFile("greet-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("greet/__init__.py", "def hello(): return 'hello from a wheel'\n")
    wheel.writestr("greet-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n")
    wheel.writestr("greet-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("greet-1.0.dist-info/RECORD", "")
END
python3 make_wheel.py
python3 -m pip install --quiet --disable-pip-version-check --no-index --target lib ./greet-1.0-py3-none-any.whl
PYTHONPATH=lib python3 -c 'import greet; print(greet.hello())'
