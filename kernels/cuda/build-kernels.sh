#!/bin/bash
# Compiles src/*.cu to PTX with clang 19; no CUDA toolkit is needed. The output
# is committed and does not depend on where or when it is made.
set -euo pipefail
cd "$(dirname "$0")/src"
CLANG=${CLANG:-clang-19}

# compile SOURCE OUTPUT [FLAGS...]
compile() {
	local source=$1 output=$2
	shift 2
	"$CLANG" -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch="${ARCH:-sm_80}" --cuda-feature=+ptx84 \
		-O3 -std=c++20 -ffp-contract=off -fno-unroll-loops -fno-ident -Wall -Wextra -Werror "$@" -S "$source" -o "$output"
}

mkdir -p ../ptx ../testdata
# With what came with sm_90: kernels that stream, and those that let them start early.
for name in rows matmul attention; do
	ARCH=sm_90 compile $name.cu ../ptx/${name}_sm90.ptx
done
for name in rows matmul attention experts; do
	compile $name.cu ../ptx/$name.ptx
done
for ranks in 2 3 4 5 6 7 8; do
	compile allreduce.cu ../ptx/allreduce_$ranks.ptx -DRANKS=$ranks
	ARCH=sm_90 compile allreduce_sm90.cu ../ptx/allreduce_${ranks}_sm90.ptx -DRANKS=$ranks
done
compile bench.cu ../ptx/bench.ptx
compile allreduce.cu ../testdata/allreduce_virtual.ptx -DRANKS=8 -DVIRTUAL
