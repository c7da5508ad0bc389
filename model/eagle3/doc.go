// Package eagle3 runs an EAGLE-3 drafter (Li et al., EAGLE-3: Scaling up
// Inference Acceleration of Large Language Models via Training-Time Test): one
// decoder layer that predicts the target's next tokens from features captured
// inside the target.
//
// Pairing. Row p of the drafter joins the target's feature at position p with
// the embedding of the token at position p+1, at rope position p. Extend runs
// such rows; a prompt is shifted left by one, and the token just chosen (or, in
// a chunked prefill, the next prompt token) comes last. Step runs drafted
// tokens: a row's feature is what the layer left for its parent row, the row
// that proposed the token; after n rows with target features, the row that
// consumes the j-th drafted token sits at position n+j-1 and sees all n rows and
// its own ancestors. kvcache.Sequence computes exactly these positions when
// extended rows are committed and drafted ones are not.
//
// After verification the drafted rows are dropped and the accepted positions
// are extended with the target's features.
//
// A small drafter runs whole: on one rank, or on every rank alike. A large one is
// split over the ranks as its target is, with three reductions a step and one
// more in Extend. It keeps no state of a request but its cache, and belongs to
// one engine thread.
package eagle3
