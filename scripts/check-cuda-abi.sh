#!/bin/bash
# Compares our cuda.h with NVIDIA's: sizes and offsets of structs, values of
# constants, and that libcuda exports every symbol the trampoline looks up.
# Run it on a machine with a CUDA toolkit: scripts/check-cuda-abi.sh [TOOLKIT]
set -euo pipefail
cd "$(dirname "$0")/.."
TOOLKIT=${1:-/usr/local/cuda}
OURS=kernels/cuda/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

constants=$(grep -ohE '^\s*(CU|CUDA)_[A-Z0-9_]+ =' $OURS/cuda_enums.h | tr -d ' =\t'
	grep -ohE '^#define CU_(MEMHOST|TRSF|IPC)[A-Z_]+' $OURS/cuda.h | awk '{print $2}')
structs=$(grep -ohE '^} CUDA_[A-Z0-9_]+' $OURS/cuda.h | awk '{print $2}')

# fields STRUCT: the names of its fields.
fields() {
	awk -v s="$1" '/^typedef struct/ {body = ""} {body = body $0 "\n"} $0 ~ "^} " s ";" {print body}' $OURS/cuda.h |
		sed -n 's/^\t[A-Za-z_ ]* \**\(.*\);$/\1/p' | tr ',' '\n' | sed 's/.* //; s/\*//g'
}

{
	echo '#include <cuda.h>'
	echo '#include <stdio.h>'
	echo '#include <stddef.h>'
	echo 'int main(void) {'
	for c in $constants; do
		# The vendor's header has dropped the oldest targets and widened one mask.
		echo "#ifdef VENDOR_HAS_$c"
		echo "printf(\"$c %lld\\n\", (long long)$c);"
		echo '#endif'
	done
	for s in $structs; do
		echo "printf(\"sizeof $s %zu\\n\", sizeof($s));"
		for f in $(fields "$s"); do
			echo "printf(\"offsetof $s.$f %zu\\n\", offsetof($s, $f));"
		done
	done
	for t in CUdeviceptr CUdevice CUresult CUuuid CUipcMemHandle; do
		echo "printf(\"sizeof $t %zu\\n\", sizeof($t));"
	done
	echo 'return 0; }'
} >"$work/check.c"

defines=$(for c in $constants; do
	[ "$c" = CU_CTX_FLAGS_MASK ] && continue
	grep -qw "$c" "$TOOLKIT/include/cuda.h" && echo "-DVENDOR_HAS_$c"
done)
cc -w $defines -I$OURS "$work/check.c" -o "$work/ours"
# We call the first form of cuGraphAddKernelNode, whose struct the vendor now calls _v1.
sed 's/CUDA_KERNEL_NODE_PARAMS\([,.)]\)/CUDA_KERNEL_NODE_PARAMS_v1\1/g' "$work/check.c" >"$work/vendor.c"
cc -w $defines -I"$TOOLKIT/include" "$work/vendor.c" -o "$work/vendor"
"$work/ours" >"$work/ours.txt"
"$work/vendor" >"$work/vendor.txt"
sed -i 's/_v1\b//' "$work/vendor.txt"
diff "$work/ours.txt" "$work/vendor.txt"
echo "$(wc -l <"$work/ours.txt") constants, sizes and offsets equal to $TOOLKIT/include/cuda.h"

library=$(ldconfig -p | awk '/libcuda\.so\.1/ {print $NF; exit}')
library=${library:-$(ls /usr/local/nvidia/lib64/libcuda.so.1 2>/dev/null || true)}
if [ -n "$library" ]; then
	grep -oE '"cu[A-Za-z0-9_]+"' $OURS/cuda_api.inc | tr -d '"' | sort -u >"$work/wanted"
	nm -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' | sort -u >"$work/exported"
	missing=$(comm -23 "$work/wanted" "$work/exported")
	[ -z "$missing" ] || { echo "not exported by $library: $missing"; exit 1; }
	echo "$(wc -l <"$work/wanted") symbols exported by $library"
fi
