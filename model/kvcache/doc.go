// Package kvcache hands out pages of a key/value cache.
//
// It holds no keys: it decides which cache slot each position of each sequence
// lives in, and the model's layers store there. Every layer of a model shares
// one Cache, since positions come and go together; a drafter has another.
//
// The allocator is deterministic: the same calls give the same pages, so ranks
// that follow the same rounds have the same page tables without exchanging
// them. It is not safe for concurrent use; a rank's engine thread owns it.
//
// A Sequence has committed positions, which every row sees, and pending rows,
// which ran but may yet be dropped: the nodes of a tree under verification, or
// a drafter's own steps. Pending rows occupy the slots after the committed
// positions in the order they were added, whatever their place in the tree;
// committing a path moves its rows to the front.
//
// A cache made by NewReusing keeps the full pages of sequences, known by their
// tokens and all tokens before them, for as long as nothing else needs the room.
// Adopt takes them over instead of a pass. Rows are the same bits whoever
// computed them, so a sequence cannot tell.
package kvcache
