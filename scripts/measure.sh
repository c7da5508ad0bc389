#!/usr/bin/env bash
# Every figure that the project promises on a machine without GPUs, each beside its
# floor or its peer. Takes about five minutes on a quiet machine with two cores.
# Usage: scripts/measure.sh [path of octet]
set -euo pipefail
cd "$(dirname "$0")/.."
octet=$(realpath "${1:-bin/octet}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '\n## %s\n\n' "$*"; }

say "machine"
"$octet" check | head -3
uptime

say "a round without compute (floor: the raw futex exchange)"
"$octet" bench round --ranks 1
"$octet" bench round --ranks 8

say "the all-reduce among processes (peer: OpenMPI where it is installed)"
peer=$(command -v mpirun.openmpi >/dev/null && echo "--peer mpi" || true)
"$octet" bench allreduce --ranks 8 --fused $peer
"$octet" bench allreduce --ranks 2 $peer

say "a verify pass of 1 GiB of bf16 weights (floor: reading them once)"
"$octet" bench checkpoint "$work/big" --size 1GiB
"$octet" bench verify --model "$work/big" --tokens 1,4,8,16 --threads 1
"$octet" bench verify --model "$work/big" --tokens 1,4,8,16 --threads 2
rm -rf "$work/big"

say "speculation against the baseline, embedded pair, eight ranks"
for prompts in "" testdata/prompts/prose.txt testdata/prompts/random-bytes.json; do
	echo "prompts: ${prompts:-held-out Go code}"
	"$octet" bench decode --ranks 8 --speculate off,eagle3,auto --tree steps=5 ${prompts:+--prompts "$prompts"}
done

say "start of eight ranks to the first token, five times"
for _ in 1 2 3 4 5; do
	/usr/bin/env bash -c "TIMEFORMAT='%R s wall, %U s user, %S s system'; time \"$octet\" generate --max-tokens 1 'func main(' >/dev/null 2>&1"
done
