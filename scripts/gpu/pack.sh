#!/bin/bash
# Builds what the GPU scripts run and packs it for a machine that has GPUs and no
# Go: bin/gpu-pack.tar.xz. PEERS names a folder with nccl_allreduce.cu and
# torch_allreduce.py to take along. Needs a C compiler, no CUDA toolkit, no GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
GO=${GO:-go}
pack=bin/gpu-pack
rm -rf $pack
mkdir -p $pack
make bin/cuda/libcuda.a
# The flags of make build, so that nothing is compiled twice.
export CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations -I$PWD/kernels/cuda/include" CGO_LDFLAGS="-O2 -g -L$PWD/bin/cuda"
flags=(-trimpath -tags cuda -ldflags "-s -w")
$GO build "${flags[@]}" -o $pack/octet ./cmd/octet
$GO test -c "${flags[@]}" -o $pack/cuda.test ./kernels/cuda
$GO test -c "${flags[@]}" -o $pack/load.test ./model/load
cp scripts/gpu/peers/* $pack/
if [ -n "${PEERS:-}" ]; then
	cp "$PEERS"/nccl_allreduce.cu "$PEERS"/torch_allreduce.py $pack/
fi
if readelf -d $pack/octet | grep -q 'NEEDED.*libcuda'; then
	echo "octet needs libcuda to start: it is to find the driver at run time" >&2
	exit 1
fi
tar -C bin -cJf bin/gpu-pack.tar.xz gpu-pack
du -h bin/gpu-pack.tar.xz
