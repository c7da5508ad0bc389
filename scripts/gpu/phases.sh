# What run.sh and eight.sh share; they source it. Every phase is bounded, keeps its
# log, and leaves one line in the summary.

# begin PACK: unpacks, and finds where logs go ($OUT where that is set).
begin() {
	local pack
	pack=$(readlink -f "$1") || exit 1
	REPO=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
	LOGS=${OUT:-/tmp/octet-gpu}/logs
	SUMMARY=${OUT:-/tmp/octet-gpu}/summary.txt
	mkdir -p "$LOGS" /tmp/octet-pack
	# By Python: a bare machine may lack xz.
	python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall("/tmp/octet-pack", filter="tar")' "$pack" || exit 1
	PACK=/tmp/octet-pack/gpu-pack
	: >"$SUMMARY"
	export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
	cd "$PACK" || exit 1
}

# phase SECONDS NAME COMMAND...: runs a command, says how it ended.
phase() {
	local limit=$1 name=$2 start=$SECONDS rc
	shift 2
	timeout -k 5 "$limit" "$@" >"$LOGS/$name.log" 2>&1
	rc=$?
	printf '%-24s rc %-3d %4d s  %s\n' "$name" $rc $((SECONDS - start)) "$(tail -n 1 "$LOGS/$name.log" | cut -c1-90)" | tee -a "$SUMMARY"
	return $rc
}

# table NAME: a phase's log is a table that the summary shows whole.
table() {
	sed 's/^/    /' "$LOGS/$1.log" | tail -n "${2:-30}" | tee -a "$SUMMARY"
}

# wanted PHASE: whether the command line asks for it; without names, all are.
wanted() {
	[ ${#PHASES[@]} -eq 0 ] && return 0
	local p
	for p in "${PHASES[@]}"; do
		[ "$p" = "$1" ] && return 0
	done
	return 1
}

devices() { nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | wc -l; }
