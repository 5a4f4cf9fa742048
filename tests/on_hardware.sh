#!/bin/sh
# All that needs an NVIDIA graphics processor, in less than 8 minutes: the tests, then `gdd bench -p parts cuda`.
#     OUT=folder PYTHON=python3 sh tests/on_hardware.sh
# OUT, by default here, gets what was printed and the record of the bench. PYTHON has numba-cuda and what gdd needs.
cd "$(dirname "$0")/.." || exit 1
OUT=$(cd "${OUT:-.}" && pwd) || exit 1
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$PWD:$PWD/book${PYTHONPATH:+:$PYTHONPATH}" GDD_RESULTS="$OUT"
gdd="from gdd_book.run import main; raise SystemExit(main())"

{
    nvidia-smi
    timeout 210 "$PYTHON" -m pytest -q -m cuda --durations 3 tests/test_cuda.py
    tests=$?
    timeout 250 "$PYTHON" -c "$gdd" bench -p parts cuda -p images 100 -p warm_up 3
    bench=$?
    echo "tests ended with $tests, bench with $bench"
} 2>&1 | tee "$OUT/on_hardware.log"
tail -n 1 "$OUT/on_hardware.log" | grep -q "with 0, bench with 0"
