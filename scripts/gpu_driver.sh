#!/usr/bin/env bash
# What the driver layer does on this machine's GPUs: builds the driver conformance tests and the benchmarks of hardware,
# driver and pinning, runs them, and leaves logs and JSON in $OUT (default: build/gpu-driver). Builds nothing else, so it
# takes a minute where `dev gpu-test` takes many. KMM_JOBS: parallel jobs (default: all cores).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/gpu-driver
out=${OUT:-$build/results}
mkdir -p "$out"

architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
[ -n "$architecture" ] || { echo "gpu_driver.sh: no GPU answers (nvidia-smi)" >&2; exit 1; }

cmake -G Ninja -S . -B "$build" -DKMM_CUDA=ON -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CUDA_ARCHITECTURES=$architecture" \
    > "$out/configure.log" 2>&1 || { tail -n 30 "$out/configure.log"; exit 1; }
cmake --build "$build" -j "${KMM_JOBS:-$(nproc)}" --target driver_conformance_cuda_test bench_hardware_limits \
    bench_driver_overhead bench_pinning > "$out/build.log" 2>&1 || { tail -n 40 "$out/build.log"; exit 1; }

failed=0
ctest --test-dir "$build" -R driver_conformance_cuda --output-on-failure --no-tests=error > "$out/conformance.log" 2>&1 || failed=1
tail -n 60 "$out/conformance.log"
for name in hardware_limits driver_overhead pinning; do
    timeout 120 "$build/benchmarks/$name" "--benchmark_out=$out/$name.json" || failed=1
done
exit "$failed"
