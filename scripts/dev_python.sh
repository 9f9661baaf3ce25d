# For ./dev, which reads it: the Python package's environment in build/venv, its lint, its wheels. Uses say, fail, in_ci, have_gpu and
# install_missing of ./dev; changes nothing outside build/.

# Made anew when what it must hold has changed; otherwise no network is asked. Beside it lies what a new environment needs to use
# an installed wheel. On a machine with a GPU the packages of the machine count, for the tests with PyTorch and CuPy.
make_venv() (
    local venv=build/venv made_for package options=()
    # Wanted, not needed: without them the tests of Numba's hooks, and of the headers for kernels by NVRTC, are skipped.
    local wanted=("numba-cuda >= 0.30" "nvidia-cuda-nvrtc >= 13, < 14")
    made_for=$(python3 -V && cat python/requirements.txt && printf '%s\n' "${wanted[@]}") || return 1
    [ "$(cat $venv/made-for 2>/dev/null)" != "$made_for" ] || return 0
    say "making $venv"
    ! have_gpu || options=(--system-site-packages)
    mkdir -p build && rm -rf $venv
    exec >build/venv.log 2>&1
    local pip=($venv/bin/python -m pip --disable-pip-version-check --quiet --retries 1)
    if ! { python3 -m venv "${options[@]}" $venv && "${pip[@]}" install -r python/requirements.txt &&
        "${pip[@]}" download --only-binary :all: --dest $venv/wheels "numpy >= 1.23, < 3"; }; then
        rm -rf $venv
        return 1
    fi
    for package in "${wanted[@]}"; do
        "${pip[@]}" install "$package" || true
    done
    printf '%s\n' "$made_for" >$venv/made-for
) </dev/null

# Sets what `configure` needs for the Python package; says so where it must be left out.
python_options=()
prepare_python() {
    if make_venv; then
        python_options=(-DKMM_PYTHON=ON "-DPython_EXECUTABLE=$PWD/build/venv/bin/python")
        return 0
    fi
    if in_ci; then
        cat build/venv.log >&2
        fail "build/venv, the environment for the Python package, could not be made"
    fi
    python_options=(-DKMM_PYTHON=OFF)
    echo "dev: the Python package is left out: build/venv could not be made (does pip reach an index? see build/venv.log)" >&2
    return 1
}

# Where no index is reached: the interpreter's own packages, if they suffice to build the Python package and to test it.
use_installed_python() {
    python3 -c 'import nanobind, numpy, pytest' 2>/dev/null || return 1
    echo "dev: the packages of $(command -v python3) are used" >&2
    python_options=(-DKMM_PYTHON=ON "-DPython_EXECUTABLE=$(command -v python3)")
}

# Our older scripts are not held to this.
python_files='python tests/python benchmarks/python scripts/python_stub.py scripts/check_pages.py scripts/draw_mappings.py'

lint_python() {
    local failed=0 ruff=(build/venv/bin/python -m ruff) settings=(--quiet --config python/ruff.toml --cache-dir build/ruff_cache)
    "${ruff[@]}" check "${settings[@]}" $python_files || failed=1
    "${ruff[@]}" format --check "${settings[@]}" $python_files || failed=1
    build/venv/bin/python -m mypy --config-file python/mypy.ini --cache-dir build/mypy_cache python/rmm/rmm python/rmm/tests || failed=1
    return $failed
}

# The first of these interpreters that works: pyenv has names for those that are not chosen, too.
first_python() {
    local name
    for name in "$@"; do
        if "$name" -c '' 2>/dev/null; then echo "$name" && return; fi
    done
    return 1
}

# One wheel for Python 3.10, one for 3.11, and one for the stable ABI, which 3.12 and everything newer loads.
wheels() {
    install_missing python
    prepare_python || fail "wheels need build/venv"
    local tag interpreters python left_out=()
    export CXX="${CXX:-c++}"  # as in other builds, for the compiler's cache
    while read -r tag interpreters; do
        python=$(first_python $interpreters) || { left_out+=("$tag (no ${interpreters// /, no })"); continue; }
        say "wheel $tag by $python"
        build/venv/bin/python -m pip --python "$(command -v "$python")" wheel --no-deps -w build/wheels ./python/rmm </dev/null
    done <<<'cp310 python3.10
cp311 python3.11
cp312-abi3 python3.12 python3.13 python3.14'
    say "in build/wheels" && ls build/wheels
    [ ${#left_out[@]} = 0 ] || printf 'left out: %s\n' "${left_out[@]}"
}
