#!/bin/bash
# All-reduce on two GPUs: correctness, timings in graphs of 122 calls, kills.
# Usage: collectives.sh DIR, where DIR has cuda.test (go test -c -tags cuda
# ./kernels/cuda) and, if peers are wanted, nccl_allreduce.cu and
# torch_allreduce.py. Every phase is bounded.
cd "$1" || exit 1
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
phase() { # phase SECONDS NAME COMMAND...
	local limit=$1 name=$2
	shift 2
	echo "== $name"
	local begin=$SECONDS
	timeout -k 2 "$limit" "$@" 2>&1 | tail -n 40
	echo "-- ${PIPESTATUS[0]} after $((SECONDS - begin)) s"
}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
if [ -f nccl_allreduce.cu ]; then
	nvcc -O2 -arch=sm_90 nccl_allreduce.cu -o /tmp/ncclar -lnccl 2>/tmp/nvcc.log || tail -3 /tmp/nvcc.log &
fi
phase 60 "backend against the oracle" ./cuda.test -test.run "Oracle|Company"
phase 60 "eight virtual ranks" ./cuda.test -test.run Virtual -test.v ${SHORT:+-test.short}
phase 60 "two devices, contract" ./cuda.test -test.run TwoDevices -test.v
phase 120 "two devices, timings" ./cuda.test -test.run xxx -test.bench TwoDevices -test.benchtime 1x
phase 90 "kills" ./cuda.test -test.run Killed -test.v
phase 60 "eight processes on one device, time-sliced" ./cuda.test -test.run ShareADevice -test.v
export CUDA_MPS_PIPE_DIRECTORY=/tmp/octet-mps/pipe CUDA_MPS_LOG_DIRECTORY=/tmp/octet-mps/log
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
CUDA_VISIBLE_DEVICES=0 nvidia-cuda-mps-control -d
phase 90 "eight processes on one device, MPS" ./cuda.test -test.run ShareADevice -test.v
echo quit | nvidia-cuda-mps-control
unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
wait
if [ -x /tmp/ncclar ]; then
	phase 60 "NCCL" /tmp/ncclar
	NCCL_P2P_DISABLE=1 phase 60 "NCCL, P2P off" /tmp/ncclar
fi
if [ -f torch_allreduce.py ]; then
	phase 90 "SymmetricMemory" torchrun --nproc_per_node=2 torch_allreduce.py symm
fi
