#!/usr/bin/env bash
# cuda12_toolkit.sh VERSION FOLDER: makes FOLDER a CUDA 12 toolkit for clang, out of the Python packages of NVIDIA: headers,
# the CUDA runtime, ptxas and libdevice. They have no nvcc and no fatbinary: a script says the version to CMake, and
# fatbinary is that of the CUDA 13 on the PATH. Used by `./dev cuda12`; does nothing where FOLDER is complete.
set -euo pipefail
version=$1 folder=$2
[ ! -e "$folder/complete" ] || exit 0
rm -rf "$folder"
mkdir -p "$folder"/{packages,bin,lib64,include,nvvm}
folder=$(cd "$folder" && pwd)

for package in cuda-runtime cuda-nvcc cuda-cccl nvtx; do
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
        --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux1_x86_64 \
        --platform manylinux2010_x86_64 --python-version 3.12 -d "$folder/packages" "nvidia-$package-cu12==$version.*"
done
for wheel in "$folder"/packages/*.whl; do
    python3 -m zipfile -e "$wheel" "$folder/packages"
done
for part in "$folder"/packages/nvidia/*/; do
    [ ! -d "$part/include" ] || cp -rn "$part/include/." "$folder/include/"
    [ ! -d "$part/lib" ] || cp -rn "$part/lib/." "$folder/lib64/"
done
cp -r "$folder"/packages/nvidia/cuda_nvcc/nvvm/. "$folder/nvvm/"
cp "$folder"/packages/nvidia/cuda_nvcc/bin/ptxas "$folder/bin/"
chmod +x "$folder/bin/ptxas"
ln -sf libcudart.so.12 "$folder/lib64/libcudart.so"
# Older packages have the shared runtime alone. A linker takes this text for what it says.
[ -e "$folder/lib64/libcudart_static.a" ] || echo "INPUT($folder/lib64/libcudart.so.12)" >"$folder/lib64/libcudart_static.a"

fatbinary=$(command -v fatbinary) || { echo "cuda12_toolkit.sh: no fatbinary on the PATH: install a CUDA toolkit" >&2; exit 1; }
# CUDA 13 took away the option that clang 19 uses.
cat >"$folder/bin/fatbinary" <<SCRIPT
#!/bin/bash
arguments=()
for argument; do
    case \$argument in
        --image=profile=sm_*) argument=--image3=kind=elf,sm=\${argument#--image=profile=sm_} ;;
        --image=profile=compute_*) argument=--image3=kind=ptx,sm=\${argument#--image=profile=compute_} ;;
    esac
    arguments+=("\$argument")
done
exec $fatbinary "\${arguments[@]}"
SCRIPT
chmod +x "$folder/bin/fatbinary"
printf '#!/bin/sh\n# For CMake, which asks for place and version.\necho "#$ TOP=%s"\necho "Cuda compilation tools, release %s, V%s.0"\n' \
    "$folder" "$version" "$version" >"$folder/bin/nvcc"
chmod +x "$folder/bin/nvcc"
printf '{"cuda": {"name": "CUDA SDK", "version": "%s.0"}}\n' "$version" >"$folder/version.json"
rm -rf "$folder/packages"
touch "$folder/complete"
