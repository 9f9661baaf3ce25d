#!/usr/bin/env bash
# Whether compute-sanitizer sees into pools: PROGRAM clean must pass, PROGRAM overflow must be reported. Exits with 77 where
# there is no compute-sanitizer or no GPU.
set -uo pipefail
program=${1:?usage: run_pool_overflow.sh PROGRAM}
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer 2>/dev/null | head -1)
[ -n "$tool" ] || { echo "skipped: no compute-sanitizer"; exit 77; }

check() { RMM_DEBUG=nvtx KMM_DRIVER=auto "$tool" --tool memcheck --nvtx yes --error-exitcode 3 "$program" "$1" 2>&1; }

clean=$(check clean)
status=$?
[ $status -ne 77 ] || { echo "skipped: no GPU"; exit 77; }
if [ $status -ne 0 ]; then
    printf '%s\nfailed: a program without defects was reported\n' "$clean"
    exit 1
fi
overflow=$(check overflow)
status=$?
printf '%s\n' "$overflow"
if [ $status -ne 3 ] || ! grep -q 'Invalid __global__ write' <<<"$overflow"; then
    echo "failed: the write past the block was not reported"
    exit 1
fi
echo "ok: the write past the block was reported"
