# A virtual environment with a wheel in it.
cat > make_wheel.py <<'END'
import zipfile
with zipfile.ZipFile("greet-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("greet.py", "def main(): print('hello from a venv')\n")
    wheel.writestr("greet-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n")
    wheel.writestr("greet-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("greet-1.0.dist-info/entry_points.txt", "[console_scripts]\ngreet = greet:main\n")
    wheel.writestr("greet-1.0.dist-info/RECORD", "")
END
python3 make_wheel.py
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-index ./greet-1.0-py3-none-any.whl
venv/bin/greet
venv/bin/pip list --disable-pip-version-check --format=freeze | grep greet
