#!/usr/bin/env bash
# Makes .try, the environment of `make try`, with the Python of the argument: those packages of the image's lock that
# `simulate` and `plan` import, wheels only; all of them take four times as long. trainer-kai runs from the checkout.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1

command -v "$python" > /dev/null ||
  { echo "there is no program $python: name a Python from 3.11 on, make try PYTHON=python3.12" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "Python 3.11 or later is required; name one: make try PYTHON=python3.12" >&2; exit 1; }
[[ ! -L .try ]] || { echo ".try is a symbolic link: remove it first, rm .try" >&2; exit 1; }
echo "installing five locked packages into .try"
"$python" -m venv --clear --without-pip .try
awk '/^[a-z]/ { keep = /^(jsonpatch|jsonpointer|msgspec|numpy|pyyaml)==/ } keep' \
  requirements-image.lock > .try/requirements.lock
# To install another pip would take longer than the packages; one older than 22.3 has no --python.
if "$python" -m pip --python .try/bin/python --version > /dev/null 2>&1; then
  pip=("$python" -m pip --python .try/bin/python)
else
  .try/bin/python -m ensurepip > /dev/null ||
    { echo "$python has no pip: install it (Debian: python3-pip), or name another: make try PYTHON=…" >&2; exit 1; }
  pip=(.try/bin/python -m pip)
fi
"${pip[@]}" install --quiet --disable-pip-version-check --no-compile --no-deps --only-binary :all: \
  --require-hashes -r .try/requirements.lock
cat > .try/bin/trainer-kai << 'END'
#!/bin/sh
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
only="only plan and simulate run in .try; for all commands: pip install $root"
export PYTHONPATH="$root"
case "${1-}" in
plan | simulate | --version) exec "$root/.try/bin/python" -P -m trainer_kai.cli "$@" ;;
-h | --help) "$root/.try/bin/python" -P -m trainer_kai.cli --help && echo "Here $only" ;;
*) echo "trainer-kai: $only" >&2 && exit 2 ;;
esac
END
chmod +x .try/bin/trainer-kai
touch .try/ready
