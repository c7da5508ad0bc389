// Package coordinator takes requests and turns them into rounds.
//
// A Coordinator is an actor: one loop, which is its only goroutine that touches
// requests. Between rounds it does what was posted to it (new requests, cancels,
// drains), then it composes the next round, hands it to the Group and waits for the
// answer. Nothing else runs meanwhile; a cancel or a deadline therefore takes effect
// within one round. The mailbox is its own, not the group's actor system's: that
// system ends with the group, and the coordinator must still be there to tell its
// clients.
//
//   - scheduler.go decides what a round runs: a pure function of the requests.
//   - drafting.go asks package speculation how each request is drafted, and tells
//     it what rounds cost and accepted.
//   - task.go cuts what a round emitted at stop tokens, stop strings and limits;
//     output.go turns it into text. Tokens, text, log-probabilities and counts have
//     one boundary, and what is past it never leaves.
//   - tokenlog.go keeps accepted tokens before they are delivered, in memory or
//     (disklog.go) in a file that outlives the process. When the group
//     breaks, every request is prefilled again under the next epoch, its output
//     included, and goes on with the tokens it would have had: sampling draws its
//     coins by seed and position.
//   - server.go is the gRPC service; package openai, below, the HTTP one.
//
// Invariants: a sequence is admitted only when the KV blocks that it can ever need
// are free, so none is preempted. A slot and its blocks are given away no earlier
// than the round after the one that released them. A sequence's cache holds its
// prompt and all generated tokens but the last, which is the root of its next tree.
//
// What a request gets is decided here once: ranks propose an acceptance, the
// coordinator cuts it, and the next round's entry commits it.
package coordinator
