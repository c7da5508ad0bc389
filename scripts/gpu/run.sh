#!/bin/bash
# Everything that one or two GPUs can show, in one call of under ten minutes: a line
# a phase in summary.txt, a log a phase beside it. Needs no Go and no network.
#   scripts/gpu/run.sh PACK [PHASE...]      PACK is what scripts/gpu/pack.sh made
# Phases: oracle fixtures virtual contract serve kill timings kills verify kimi
# compile nccl symm shared mps
set -uo pipefail
# shellcheck source=scripts/gpu/phases.sh
source "$(dirname "$0")/phases.sh"
PHASES=("${@:2}")
begin "${1:?give the pack}"
GPUS=$(devices)
nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current --format=csv,noheader | tee -a "$SUMMARY"

if [ -f nccl_allreduce.cu ] && wanted nccl; then
	nvcc -O2 -arch=native nccl_allreduce.cu -o /tmp/nccl_allreduce -lnccl >"$LOGS/nvcc.log" 2>&1 &
fi

# Correctness first: what is wrong is not timed.
wanted oracle && phase 60 oracle ./cuda.test -test.run 'Oracle|Company'
wanted fixtures && (cd "$REPO/model/load" && phase 60 fixtures "$PACK/load.test" -test.run FixturesOnADevice -test.v)
wanted virtual && phase 60 virtual ./cuda.test -test.run Virtual -test.v -test.short

MODEL=$REPO/testdata/fixtures/eagle3-llama-pair
generate() { # generate NAME ARGUMENTS...: one greedy request of the trained pair
	local name=$1
	shift
	phase 60 "generate-$name" ./octet generate --model "$MODEL/target" --draft "$MODEL/draft" --prompt-ids "$(python3 -c "
import json; print(','.join(map(str, json.load(open('$MODEL/expected.json'))['cases'][0]['prompt_ids'])))")" \
		--max-tokens 96 --ignore-eos --temperature 0 --speculate eagle3 --tree topk=1,steps=5,tokens=6 --json "$@"
	cp "$LOGS/generate-$name.log" "/tmp/$name.json"
}
if wanted serve; then
	generate cpu --backend cpu --ranks 1
	generate gpu1 --backend cuda --ranks 1 && phase 30 same-gpu1 python3 "$REPO/scripts/gpu/same.py" /tmp/cpu.json /tmp/gpu1.json
	if [ "$GPUS" -ge 2 ]; then
		generate gpu2 --backend cuda --ranks 2 && phase 30 same-gpu2 python3 "$REPO/scripts/gpu/same.py" /tmp/cpu.json /tmp/gpu2.json
	fi
fi
if wanted kill && [ "$GPUS" -ge 2 ]; then
	printf 'at round 5 kill rank=any every=8\n' >/tmp/kill.fault
	phase 90 serving-kills ./octet fault run /tmp/kill.fault --backend cuda --ranks 2 --strikes 10 --streams 4
	table serving-kills 12
fi

if [ "$GPUS" -ge 2 ]; then
	wanted contract && phase 60 contract ./cuda.test -test.run 'TwoDevices' -test.v
	wanted timings && phase 90 timings ./cuda.test -test.run xxx -test.bench TwoDevices -test.benchtime 1x && table timings 44
	wanted kills && phase 60 kills ./cuda.test -test.run Killed -test.v
fi
wanted verify && phase 120 verify ./octet bench verify --backend cuda --shape llama-3-8b --context 1024 --repeats 11 &&
	table verify
wanted compile && phase 150 compile python3 torch_verify.py && table compile
wanted kimi && phase 240 kimi ./octet bench verify --backend cuda --shape kimi-k2.5 --shard 0/8 --tokens 1,4,8,16 --context 1024 --repeats 11 &&
	table kimi

wait
if [ "$GPUS" -ge 2 ]; then
	if wanted nccl && [ -x /tmp/nccl_allreduce ]; then
		phase 40 nccl /tmp/nccl_allreduce && table nccl
		NCCL_P2P_DISABLE=1 phase 40 nccl-host /tmp/nccl_allreduce && table nccl-host
	fi
	if wanted symm && [ -f torch_allreduce.py ]; then
		phase 60 symm torchrun --nproc_per_node=2 torch_allreduce.py symm && table symm
	fi
fi

# Eight processes on one device.
wanted shared && phase 60 shared ./cuda.test -test.run ShareADevice -test.v
if wanted mps; then
	export CUDA_MPS_PIPE_DIRECTORY=/tmp/octet-mps/pipe CUDA_MPS_LOG_DIRECTORY=/tmp/octet-mps/log
	mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
	CUDA_VISIBLE_DEVICES=0 nvidia-cuda-mps-control -d
	phase 90 mps ./cuda.test -test.run ShareADevice -test.v
	echo quit | nvidia-cuda-mps-control
fi
echo "total $SECONDS s" | tee -a "$SUMMARY"
