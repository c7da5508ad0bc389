// Package rank is the engine of one rank: it loads a shard of the target and,
// where it drafts, the drafter, and runs one round after another.
//
// # A round
//
// Every rank gets the same frame and does the same, in four parts:
//
//   - settle: sequences that left are released; the accepted path of each
//     sequence's last tree moves to the front of its cache.
//   - draft: rank 0 (or every rank, by Config.DraftOnAll) extends the drafter
//     with the target's features of what was accepted and grows the trees. Rank
//     0's trees go to the others over the data plane.
//   - verify: one forward pass of the target over the chunks and trees of all
//     sequences; logits of the rows that need them are gathered at rank 0.
//   - accept: rank 0 proposes what each sequence emits. The coordinator may cut
//     it and says in the next round what was kept.
//
// A rank is a deterministic function of its weights and the rounds it has seen.
//
// # Epochs
//
// When another rank is lost, an engine leaves the epoch and rejoins the next with its
// weights as they are, a new communicator, and empty caches: replayed by the
// coordinator, it then computes what a freshly loaded one would.
//
// # Devices
//
// A rank computes on a CPU or on a GPU. On a GPU (device, deviceReducer) sums over
// ranks are launches on the device's stream, between the GPUs' memories or through
// pinned host memory: the ranks find out together, over the host's slabs, which path
// yields the right bits for all. What is for the host goes over the slabs as on CPUs.
// A verify pass that has been seen twice is a graph. The host waits for the device
// once a round for the logits, and once a drafting step for its candidates.
//
// # Threads
//
// An Engine is used by one locked thread. Abort may come from any.
package rank
