// Package speculation decides, as pure functions of values, what to draft and
// what to accept.
//
//   - Tree and Builder: the candidates of one sequence. Builder grows an EAGLE-3
//     tree from the drafter's best tokens, one level a call; a chain is a tree
//     with TopK 1. NGram drafts by prompt lookup.
//   - Sampler: how one sequence's tokens are chosen (Params) and which path of a
//     tree survives the target's logits. The token at a position is a function of
//     (logits, Params, tokens before it, seed, position) and of nothing else, so
//     the output is the same for every tree, drafter, batch and replay, and
//     without speculation.
//   - Cut: where the emitted run ends.
//   - Controller and Cost: which tree, if any, pays.
//
// Nothing here knows a clock, a goroutine, a device or another package of the
// project. A value belongs to one goroutine at a time; a Workspace is shared by
// the Samplers of one thread.
//
// The tree is that of EAGLE-2/3 (Li et al., 2024 and 2025) with the candidate
// order of SGLang; the generator is Philox4x32-10 (Salmon et al., 2011).
package speculation
