#!/bin/bash
# Everything that a box of four or eight GPUs is needed for, in one call of under ten
# minutes. It also runs on two, with fewer ranks.
#   scripts/gpu/eight.sh PACK [PHASE...]    PACK is what scripts/gpu/pack.sh made
# Phases: topo contract timings kills serve verify compile nccl symm simulate
set -uo pipefail
# shellcheck source=scripts/gpu/phases.sh
source "$(dirname "$0")/phases.sh"
PHASES=("${@:2}")
begin "${1:?give the pack}"
RANKS=$(devices)
if [ "$RANKS" -lt 2 ]; then
	echo "eight.sh: this machine has $RANKS GPUs, two are the least" >&2
	exit 3
fi
export OCTET_CUDA_RANKS=$RANKS
nvidia-smi topo -m >"$LOGS/topo-m.log" 2>&1
if [ -f nccl_allreduce.cu ] && wanted nccl; then
	sed "s/ncclCommInitRank(&c,2,/ncclCommInitRank(\&c,$RANKS,/; s/bar\[k\]<2/bar[k]<$RANKS/; s/for(int r=0;r<2;r++)/for(int r=0;r<$RANKS;r++)/; s/wait(&st);wait(&st);/while(wait(\&st)>0);/" \
		nccl_allreduce.cu >/tmp/nccl_allreduce.cu
	nvcc -O2 -arch=native /tmp/nccl_allreduce.cu -o /tmp/nccl_allreduce -lnccl >"$LOGS/nvcc.log" 2>&1 &
fi

if wanted topo; then
	phase 30 topo ./octet topo --json && cp "$LOGS/topo.log" "${OUT:-/tmp/octet-gpu}/box.json"
	phase 30 tune ./octet tune --ranks "$RANKS" --dry-run --json
fi
# 100,000 random calls, all bits held against the contract, over both paths.
wanted contract && OCTET_CUDA_CALLS=16000 phase 180 contract ./cuda.test -test.run TwoDevices -test.v
wanted timings && phase 120 timings ./cuda.test -test.run xxx -test.bench TwoDevices -test.benchtime 1x && table timings 44
wanted kills && OCTET_CUDA_KILLS=10 phase 60 kills ./cuda.test -test.run Killed -test.v
wait
if wanted nccl && [ -x /tmp/nccl_allreduce ]; then
	phase 40 nccl /tmp/nccl_allreduce && table nccl
	NCCL_P2P_DISABLE=1 phase 40 nccl-host /tmp/nccl_allreduce && table nccl-host
fi
wanted symm && [ -f torch_allreduce.py ] &&
	phase 60 symm torchrun --nproc_per_node="$RANKS" torch_allreduce.py symm && table symm
if wanted serve; then
	phase 90 serve ./octet profile --backend cuda --ranks "$RANKS" --max-tokens 64 --ignore-eos --json 'func reverse('
fi
for shape in llama-3-70b kimi-k2.5; do
	wanted verify && phase 200 "verify-$shape" ./octet bench verify --backend cuda --shape $shape --shard "0/8" \
		--tokens 1,4,8,16,32,64 --context 1024 && table "verify-$shape"
done
if wanted simulate && [ -f "${OUT:-/tmp/octet-gpu}/box.json" ]; then
	phase 30 simulate ./octet simulate --box "${OUT:-/tmp/octet-gpu}/box.json" --model kimi-k2.5 && table simulate
fi
echo "total $SECONDS s" | tee -a "$SUMMARY"
