package cuda

import (
	"fmt"
	"strconv"
)

// Form is one way to all-reduce. All forms yield the same bits.
type Form uint8

// The forms, by mechanism; see src/allreduce.cu.
const (
	OneShot Form = iota // packets to everybody, everybody sums
	TwoShot             // packets to the owner of a chunk, who sums; sums to everybody
	Staged              // as OneShot, plain data in tiles with flags
)

var formNames = [...]string{"one-shot", "two-shot", "staged"}

func (f Form) String() string { return formNames[f] }

var formKernels = [...]string{"all_reduce_one_shot", "all_reduce_two_shot", "all_reduce_staged"}

// Grid is the shape of a launch. Every rank uses the same one for a call. All
// its blocks must fit on the device at once.
type Grid struct {
	Blocks  int
	Threads int // a multiple of 32
	Writers int // Staged: how many of the blocks write; the others read
	Cluster int // fused OneShot: blocks that share a row; 0 or 1: a block takes whole rows
}

const (
	// segmentValues is src/norm.cuh's NORM_SEGMENT: a block of a cluster takes whole ones.
	segmentValues = 512
	maxThreads    = 1024
	maxEach       = 3 // packets a thread of the fused forms
)

// Supported reports whether there are kernels for a group of that size.
func Supported(ranks int) bool { return ranks >= 2 && ranks <= maxRanks }

// packets is how many packets carry n values, see src/exchange.cuh.
func packets(values int) int { return (values/2 + 2) / 3 }

// fusedKernel is the kernel for rows of cols values in the grid g. A thread takes
// up to three packets, or one in a cluster, whose blocks take whole segments of
// the norm (src/norm.cuh).
func fusedKernel(form Form, g Grid, cols int) (string, error) {
	if form <= TwoShot && cols%8 == 0 {
		if g.Cluster > 1 {
			if form == OneShot && cols%(segmentValues*g.Cluster) == 0 && packets(cols/g.Cluster) <= g.Threads && g.Blocks%g.Cluster == 0 {
				return "all_reduce_one_shot_norm_cluster", nil
			}
		} else if k := (packets(cols) + g.Threads - 1) / g.Threads; k <= maxEach {
			return formKernels[form] + "_norm_" + strconv.Itoa(k), nil
		}
	}
	return "", fmt.Errorf("cuda: no fused %v all-reduce of rows of %d values in %+v", form, cols, g)
}

// Choice is how one payload is reduced.
type Choice struct {
	Form Form
	Grid Grid
}

// Policy chooses the form of an all-reduce. It is a pure function of what all ranks
// have in common; its numbers are those of RESULTS.md.
type Policy struct {
	Ranks    int
	Host     bool // over host memory, not peer to peer
	Clusters bool // every device has thread block clusters (sm_90)
	// Blocks bounds a launch: all of a group's blocks on a device must fit on it at
	// once. 0: as many as the kernels can do.
	Blocks int
}

// The sizes, in bytes, from which another form or grid is faster.
const (
	wideBlocksFrom   = 192 << 10 // peer memory: 512 threads a block instead of 128
	peerTwoShotFrom  = 1 << 20   // bytes that a one-shot rank sends, to all others together
	hostTwoShotFrom  = 1 << 20   // bytes that a one-shot rank reads, from all others together
	twoShotFromRanks = 4
)

func (p Policy) most() int {
	if p.Blocks > 0 {
		return min(p.Blocks, maxBlocks)
	}
	return maxBlocks
}

func (p Policy) form(bytes int) Form {
	from := peerTwoShotFrom
	if p.Host {
		from = hostTwoShotFrom
	}
	if p.Ranks >= twoShotFromRanks && (p.Ranks-1)*bytes >= from {
		return TwoShot
	}
	return OneShot
}

// Plain is the choice for an all-reduce of count bf16 values.
func (p Policy) Plain(count int) Choice {
	threads := 128
	if !p.Host && 2*count >= wideBlocksFrom || p.Host && packets(count) > threads*p.most() {
		threads = 512
	}
	form := p.form(2 * count)
	if form == TwoShot {
		threads = 256
	}
	return Choice{form, Grid{Blocks: min(max(1, (packets(count)+threads-1)/threads), p.most()), Threads: threads}}
}

// Fused is the choice for the form with residual and norm.
func (p Policy) Fused(rows, cols int) Choice {
	form := p.form(2 * rows * cols)
	most := mostCluster
	if p.Host { // a block that waits for the bus has time for more of the row
		most = hostCluster
	}
	if cluster := clusterOf(cols, most); form == OneShot && p.Clusters && cluster > 1 && cluster <= p.most() {
		return Choice{form, Grid{
			Blocks: min(rows, p.most()/cluster) * cluster, Threads: warps(packets(cols / cluster)), Cluster: cluster,
		}}
	}
	each := 2
	if packets(cols) > each*maxThreads {
		each = maxEach
	}
	return Choice{form, Grid{Blocks: min(rows, p.most()), Threads: warps((packets(cols) + each - 1) / each)}}
}

// warps rounds threads up to whole warps.
func warps(threads int) int { return max(32, (threads+31)&^31) }

// The most blocks that share a row: what the architecture promises, and what is
// fastest over host memory.
const mostCluster, hostCluster = 8, 2

// clusterOf is how many blocks share a row of cols values: at most so many, and such
// that they divide the segments of the norm and have a thread for each packet.
func clusterOf(cols, most int) int {
	for cluster := most; cluster > 1; cluster-- {
		if cols%(segmentValues*cluster) == 0 && packets(cols/cluster) <= maxThreads {
			return cluster
		}
	}
	return 1
}

// AdmitsRows reports whether the fused forms can reduce rows of cols values.
func AdmitsRows(cols int) error {
	if cols%8 != 0 || packets(cols) > maxEach*maxThreads {
		return fmt.Errorf("cuda: rows of %d values: the all-reduce kernels take multiples of 8 up to %d", cols, maxEach*maxThreads*6)
	}
	return nil
}
