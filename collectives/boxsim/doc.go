// Package boxsim predicts what all-reduces and verify passes take on boxes that
// are not here.
//
// It executes the algorithms' own step programs, collectives.Algorithm.Program,
// which the runtime executes too and is traced against, on a virtual clock. Among
// GPUs (gpu.go) a Put is a flow over the links of the box; flows that share a link
// get max-min fair shares of it (network.go); a flag takes the path's latency; a
// box may have regimes in which posted writes collapse. Among processes (cpu.go)
// steps take turns on the cores, with the cost of switching, sleeping, waking and
// summing.
//
// What a program does not say, whether flags travel in the data, what a launch
// costs, which wire type partials have, is a Stack: ours, or one of those in use
// today. Rates and latencies are those of the box, with their sources, but for one
// constant a box that Fit determines from the calibration points of
// calibration.json. Accuracy compares everything with the held-out ones.
//
// Results are functions of their arguments alone: there is no clock, no randomness
// and no map order in them. Times are microseconds, sizes bytes, rates 10^9 bytes a
// second.
package boxsim
